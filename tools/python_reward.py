#!/usr/bin/env python3
"""Serves a Python reward function over JSON lines: python_reward.py FILE FUNCTION [auto|verl|trl].

Each line of standard input is one sample, {"id", "prompt", "response", "label", "extra": {...}, ...}; each gets one line
{"id", "reward"} or {"id", "error", "traceback"} on standard output. What the function prints goes to standard error.
Two signatures are understood, told apart by their parameter names:
  verl  f(data_source, solution_str, ground_truth, extra_info) -> number or {"score": number, ...}
  trl   f(prompts, completions, **columns) -> list with one number (called with lists of one sample)
Standard library only.
"""
import asyncio
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback


class Unusable(Exception):
    """What the user must change before the function can be called; its text says everything."""


def load_function(path, name):
    if not os.path.isfile(path):
        raise Unusable(f"{path}: no such file")
    folder = os.path.dirname(os.path.abspath(path))
    sys.dont_write_bytecode = True
    sys.path[:] = [folder] + [entry for entry in sys.path if entry]
    spec = importlib.util.spec_from_file_location("braid_reward_function", path)
    if spec is None:
        raise Unusable(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        offered = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise Unusable(f"{path}: no function '{name}' (functions: {', '.join(offered) or 'none'})")
    return function


def parameters_of(function):
    """Returns the parameter names, or None where any keyword is accepted."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None, set(parameters)
    return set(parameters), set(parameters)


def pick_signature(function, wanted):
    _, names = parameters_of(function)
    if wanted != "auto":
        return wanted
    if "solution_str" in names:
        return "verl"
    if "completions" in names or "prompts" in names:
        return "trl"
    raise Unusable(
        f"{function.__name__}({', '.join(sorted(names))}): neither verl's (data_source, solution_str, ground_truth, "
        "extra_info) nor TRL's (prompts, completions, **columns); rename the parameters or set signature: verl | trl"
    )


def call(function, arguments):
    """Calls with the arguments that the function has a name for; an async function is run to its end."""
    accepted, _ = parameters_of(function)
    if accepted is not None:
        arguments = {key: value for key, value in arguments.items() if key in accepted}
    result = function(**arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def verl_arguments(request):
    extra = request["extra"]
    nested = extra.get("reward_model")
    ground_truth = extra.get("ground_truth", extra.get("label"))
    if ground_truth is None and isinstance(nested, dict):
        ground_truth = nested.get("ground_truth")
    info = dict(extra)
    if isinstance(extra.get("extra_info"), dict):
        info.update(extra["extra_info"])
    info.setdefault("prompt", request["prompt"])
    info.setdefault("truncated", request["truncated"])
    return {
        "data_source": extra.get("data_source"),
        "solution_str": request["response"],
        "ground_truth": ground_truth,
        "extra_info": info,
    }


def trl_arguments(request):
    arguments = {key: [value] for key, value in request["extra"].items()}
    arguments.update(
        prompts=[request["prompt"]],
        completions=[request["response"]],
        prompt_ids=[request["prompt_ids"]],
        completion_ids=[request["response_ids"]],
        truncated=[request["truncated"]],
    )
    return arguments


def number(value):
    if value is None:
        raise TypeError("the function returned None, not a number")
    if isinstance(value, str):
        raise TypeError(f"the function returned the text {value!r}, not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"the function returned {result}, not a finite number")
    return result


def verl_reward(result):
    """Returns (reward, further numbers)."""
    if not isinstance(result, dict):
        return number(result), {}
    if "score" not in result:
        raise KeyError(f"the function returned a dict without 'score': {sorted(result)}")
    logs = {}
    for key, value in result.items():
        if key != "score" and isinstance(value, (bool, int, float)) and math.isfinite(value):
            logs[key] = float(value)
    return number(result["score"]), logs


def trl_reward(result):
    if not isinstance(result, (list, tuple)) and not hasattr(result, "__len__"):
        raise TypeError(f"the function returned {type(result).__name__}, not a list with one number per completion")
    if len(result) != 1:
        raise ValueError(f"the function returned {len(result)} rewards for 1 completion")
    return number(result[0]), {}


SIGNATURES = {"verl": (verl_arguments, verl_reward), "trl": (trl_arguments, trl_reward)}


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def answer(function, signature, request):
    arguments_of, reward_of = SIGNATURES[signature]
    try:
        reward, logs = reward_of(call(function, arguments_of(request)))
        return {"id": request["id"], "reward": reward, "logs": logs}
    except (Exception, SystemExit) as error:
        return {"id": request["id"], "error": one_line(error), "traceback": traceback.format_exc()}


def take_standard_streams():
    """Keeps the protocol's pipes apart from what the function, or a program it starts, reads and prints."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def main():
    path, name, wanted = (sys.argv[1:] + ["auto"])[:3]
    requests, answers = take_standard_streams()

    def say(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        function = load_function(path, name)
        signature = pick_signature(function, wanted)
    except Unusable as error:
        say({"fatal": str(error)})
        return 2
    except (Exception, SystemExit) as error:
        say({"fatal": one_line(error), "traceback": traceback.format_exc()})
        return 2
    say({"ready": True})
    for line in requests:
        say(answer(function, signature, json.loads(line)))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
