"""A reward function in verl's calling convention: one sample at a time."""
import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """1 for the right number behind ####, 0.1 for another number there, otherwise 0."""
    found = re.findall(r"####\s*(-?[0-9][0-9.,]*)", solution_str)
    if not found:
        return {"score": 0.0, "answered": 0.0}
    right = found[-1].replace(",", "").rstrip(".") == ground_truth
    return {"score": 1.0 if right else 0.1, "answered": 1.0}
