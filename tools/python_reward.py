#!/usr/bin/env python3
"""Serves a Python reward function over JSON lines: python_reward.py FILE FUNCTION SETTINGS.

SETTINGS is a JSON object: "signature" and "batch" (each may be "auto"), "completions" ("auto", "messages" or "text"),
"kwargs" (further arguments of the function) and "timeout_s". The first line of standard output says
{"ready": true, "batch", "own_deadline", "columns": those of the data that the function cannot be called without} or
{"fatal": why}. Each line of standard input is then one call,
{"samples": [{"id", "prompt", "messages", "response", "extra": {...}, ...}, ...], "step", "total_steps"}; its answer is
{"answers": [one per sample]}, each {"reward", "logs"}, {"absent": true}, {"timeout": why} or
{"error", "kind", "traceback"}; or one {"error", "kind", "traceback"} for all. What the function prints goes to standard
error. Three signatures are understood, told apart by their parameter names:
  verl        f(data_source, solution_str, ground_truth, extra_info) -> number or {"score": number, ...}
  verl_batch  f(data_sources, solution_strs, ground_truths, extra_infos) -> list of those
  trl         f(prompts, completions, **columns) -> list of numbers, None where the function does not apply
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
import types


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
    """Returns the parameter names that may be given (None where any keyword is accepted), and all names."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None, set(parameters)
    return set(parameters), set(parameters)


def pick_signature(function, wanted):
    _, names = parameters_of(function)
    if wanted != "auto":
        return wanted
    if "solution_strs" in names:
        return "verl_batch"
    if "solution_str" in names:
        return "verl"
    if names & {"completions", "prompts", "completion_ids"}:
        return "trl"
    raise Unusable(
        f"{getattr(function, '__name__', function)}({', '.join(sorted(names))}): neither verl's (data_source, "
        "solution_str, ground_truth, extra_info), in a batch with an s at each name, nor TRL's (prompts, completions, "
        "**columns); rename the parameters or set signature: verl | verl_batch | trl"
    )


def is_async(function):
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def pick_batch(function, signature, wanted):
    if signature != "verl":
        return "step" if wanted == "auto" else wanted
    if is_async(function):
        return "step" if wanted == "auto" else wanted
    if wanted in ("group", "step"):
        raise Unusable(
            f"batch: {wanted} needs a function that takes lists (verl's batch functions or TRL's) or an async one; this "
            "one takes one sample: remove batch"
        )
    return "sample"


def check_kwargs(function, kwargs):
    accepted, names = parameters_of(function)
    unknown = [] if accepted is None else sorted(set(kwargs) - accepted)
    if unknown:
        raise Unusable(f"kwargs: the function has no parameter '{unknown[0]}' (it has {', '.join(sorted(names))})")


VERL_ARGUMENTS = {"data_source": "data_sources", "solution_str": "solution_strs"}
VERL_ARGUMENTS.update({"ground_truth": "ground_truths", "extra_info": "extra_infos"})
TRL_ARGUMENTS = ("prompts", "completions", "prompt_ids", "completion_ids", "truncated", "trainer_state", "log_metric")
TRL_ARGUMENTS += ("log_extra",)


def needed_columns(function, signature, kwargs):
    """The columns of the data without which the function cannot be called: parameters without a default that nothing
    else gives. Only TRL's functions are given columns by name."""
    given = {"verl": tuple(VERL_ARGUMENTS), "verl_batch": tuple(VERL_ARGUMENTS.values()), "trl": TRL_ARGUMENTS}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in variable or parameter.default is not inspect.Parameter.empty:
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise Unusable(f"the parameter '{name}' is positional only; arguments are given by name: remove the /")
        if name in given[signature] or name in kwargs:
            continue
        if name in ("prompt", "completion"):
            raise Unusable(f"the parameter '{name}' is not among what is given; take '{name}s', which holds a batch")
        needed.append(name)
    if needed and signature != "trl":
        raise Unusable(
            f"the parameter '{needed[0]}' has no default and is not among what signature {signature} gives "
            f"({', '.join(given[signature])}); name it in kwargs, or give it a default"
        )
    return needed


def accepted_arguments(function, arguments):
    """The arguments that the function has a name for."""
    accepted, _ = parameters_of(function)
    return arguments if accepted is None else {key: value for key, value in arguments.items() if key in accepted}


def failure(error):
    """An exception as an answer; its kind is the same for the same exception at the same line.

    The traceback begins in the function's file; an error that was found here has none.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == failure.__code__.co_filename:
        trace = trace.tb_next
    answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
    if trace is not None:
        last = traceback.extract_tb(trace)[-1]
        answer["kind"] = f"{type(error).__name__} {last.filename}:{last.lineno}"
        answer["traceback"] = "".join(traceback.format_exception(type(error), error, trace))
    return answer


def number(value):
    """A number as float; True and False count as 1 and 0, as in verl and TRL."""
    if value is None:
        raise TypeError("the function returned None, not a number")
    if isinstance(value, (str, bytes)):
        raise TypeError(f"the function returned the text {value!r}, not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"the function returned {result}, not a finite number")
    return result


def verl_answer(result):
    """One sample's answer from a number or {"score": number, ...}."""
    if not isinstance(result, dict):
        return {"reward": number(result), "logs": {}}
    if "score" not in result:
        raise KeyError(f"the function returned a dict without 'score': {sorted(map(str, result))}")
    logs = {}
    for key, value in result.items():
        if key != "score" and isinstance(value, (bool, int, float)) and math.isfinite(value):
            logs[str(key)] = float(value)
    return {"reward": number(result["score"]), "logs": logs}


def trl_answer(result):
    return {"absent": True} if result is None else {"reward": number(result), "logs": {}}


def guarded(answer_of, result):
    try:
        return answer_of(result)
    except Exception as error:
        return failure(error)


def rewards_of(result, count):
    """A returned list, tuple, array or tensor as a list with one entry per sample."""
    if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__len__"):
        raise TypeError(f"the function returned {type(result).__name__}, not a list with one number per completion")
    rewards = list(result)
    if len(rewards) != count:
        raise ValueError(f"the function returned {len(rewards)} rewards for {count} completion{'s' * (count != 1)}")
    return rewards


def beginning(messages):
    """What the assistant has begun to say in the last message of a prompt, with which TRL's completions begin; else None."""
    if messages[-1].get("role") != "assistant":
        return None
    content = messages[-1].get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def verl_arguments(sample):
    extra = sample["extra"]
    nested = extra.get("reward_model")
    ground_truth = nested.get("ground_truth") if isinstance(nested, dict) else None
    if ground_truth is None:
        ground_truth = extra.get("ground_truth", extra.get("label"))
    info = dict(extra)
    if isinstance(extra.get("extra_info"), dict):
        info.update(extra["extra_info"])
    for key, value in (("prompt", sample["prompt"]), ("truncated", sample["truncated"]), ("num_turns", None)):
        info.setdefault(key, value)
    info.setdefault("rollout_reward_scores", {})
    return {
        "data_source": extra.get("data_source"),
        "solution_str": sample["response"],
        "ground_truth": ground_truth,
        "extra_info": info,
    }


class Server:
    def __init__(self, function, settings):
        self.function = function
        self.settings = settings
        self.signature = pick_signature(function, settings["signature"])
        self.batch = pick_batch(function, self.signature, settings["batch"])
        check_kwargs(function, settings["kwargs"])
        self.columns_needed = needed_columns(function, self.signature, settings["kwargs"])
        self.loop = asyncio.new_event_loop()  # one for all calls: what a function keeps open belongs to it
        asyncio.set_event_loop(self.loop)

    def own_deadline(self):
        """Whether each sample of a batch has timeout_s of its own."""
        return self.signature == "verl" and is_async(self.function)

    def call(self, arguments):
        """What the function returns; a coroutine where it is async."""
        return self.function(**accepted_arguments(self.function, {**arguments, **self.settings["kwargs"]}))

    def result(self, arguments):
        result = self.call(arguments)
        return self.loop.run_until_complete(result) if inspect.isawaitable(result) else result

    def verl(self, request):
        samples = request["samples"]
        if self.own_deadline():
            return self.loop.run_until_complete(self.verl_together(samples))
        return [self.verl_one(sample) for sample in samples]

    def verl_one(self, sample):
        try:
            return verl_answer(self.result(verl_arguments(sample)))
        except (Exception, SystemExit) as error:
            return failure(error)

    async def verl_together(self, samples):
        timeout_s = self.settings["timeout_s"]

        async def one(sample):
            try:
                return verl_answer(await asyncio.wait_for(self.call(verl_arguments(sample)), timeout_s))
            except asyncio.TimeoutError:
                return {"timeout": f"no answer within {timeout_s:g} s"}
            except (Exception, SystemExit) as error:
                return failure(error)

        return await asyncio.gather(*(one(sample) for sample in samples))

    def verl_batch(self, request):
        each = [verl_arguments(sample) for sample in request["samples"]]
        arguments = {names: [one[name] for one in each] for name, names in VERL_ARGUMENTS.items()}
        return [guarded(verl_answer, one) for one in rewards_of(self.result(arguments), len(each))]

    def trl(self, request):
        samples = request["samples"]
        logs = {}

        def log_metric(name, value):
            if math.isfinite(value):
                logs.setdefault(str(name), []).append(float(value))

        def log_extra(name, values):
            for sample_logs, value in zip(extra_logs, values):
                if isinstance(value, (bool, int, float)) and math.isfinite(value):
                    sample_logs[str(name)] = float(value)

        extra_logs = [{} for _ in samples]
        arguments = {**self.columns(samples), **self.texts(samples)}
        arguments["trainer_state"] = types.SimpleNamespace(
            global_step=request["step"], max_steps=request["total_steps"]
        )
        arguments.update(log_metric=log_metric, log_extra=log_extra)
        results = rewards_of(self.result(arguments), len(samples))
        answers = [guarded(trl_answer, one) for one in results]
        for answer, sample_logs in zip(answers, extra_logs):
            answer["logs"] = {**answer.get("logs", {}), **sample_logs}
        for name, values in logs.items():  # one number per call: the first sample carries it
            answers[0]["logs"][name] = sum(values) / len(values)
        return answers

    def columns(self, samples):
        names = []
        for sample in samples:
            names.extend(name for name in sample["extra"] if name not in names)
        names = [name for name in names if name not in ("prompt", "completion", "completion_ids")]
        return {name: [sample["extra"].get(name) for sample in samples] for name in names}

    def texts(self, samples):
        wanted = self.settings["completions"]
        as_messages = wanted == "messages" or (wanted == "auto" and samples[0]["messages"] is not None)
        prompts = [sample["prompt"] for sample in samples]
        completions = [sample["response"] for sample in samples]
        if as_messages:
            prompts = [sample["messages"] or [{"role": "user", "content": sample["prompt"]}] for sample in samples]
            begun = [beginning(messages) for messages in prompts]
            prompts = [messages if text is None else messages[:-1] for messages, text in zip(prompts, begun)]
            completions = [[{"role": "assistant", "content": (text or "") + rest}] for text, rest in zip(begun, completions)]
        return {
            "prompts": prompts,
            "completions": completions,
            "prompt_ids": [sample["prompt_ids"] for sample in samples],
            "completion_ids": [sample["response_ids"] for sample in samples],
            "truncated": [sample["truncated"] for sample in samples],
        }

    def answer(self, request):
        try:
            return {"answers": getattr(self, self.signature)(request)}
        except (Exception, SystemExit) as error:
            return failure(error)


def take_standard_streams():
    """Keeps the protocol's pipes apart from what the function, or a program it starts, reads and prints."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def main():
    path, name, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    requests, answers = take_standard_streams()

    def say(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        server = Server(load_function(path, name), settings)
    except Unusable as error:
        say({"fatal": str(error)})
        return 2
    except (Exception, SystemExit) as error:
        problem = failure(error)
        say({"fatal": f"{path}: cannot be loaded: {problem.pop('error')}", **problem})
        return 2
    ready = {"ready": True, "batch": server.batch, "own_deadline": server.own_deadline()}
    say({**ready, "columns": server.columns_needed})
    for line in requests:
        say(server.answer(json.loads(line)))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
