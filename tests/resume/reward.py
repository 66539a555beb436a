def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """Depends on the text only, and differs within a group."""
    return (len(solution_str.encode("utf-8", "surrogatepass")) % 7) / 6.0
