"""Reward functions in TRL's calling convention: lists of prompts and completions, every other column of the data as a list."""
import re


def text_of(completion):
    """What the model said: a completion is a list of messages where the prompts are conversations, otherwise text."""
    return completion if isinstance(completion, str) else completion[0]["content"]


def answer_in(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else None


def correct_answer(prompts, completions, answer, **columns):
    """1 for the right number. `answer` is a column of problems.jsonl."""
    return [1.0 if answer_in(text_of(completion)) == right else 0.0 for completion, right in zip(completions, answer)]


def answer_is_marked(prompts, completions, **columns):
    """1 for exactly one pair of marks, whatever stands between them."""
    return [1.0 if len(re.findall(r"<answer>.*?</answer>", text_of(completion), re.DOTALL)) == 1 else 0.0 for completion in completions]
