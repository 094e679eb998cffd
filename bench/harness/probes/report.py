"""The result as Markdown, and the goals that were missed."""

from . import blocked_report, cost_report, lame_duck

_PARTS = (("lame_duck", lame_duck), ("cost", cost_report), ("blocked", blocked_report))


def missed(result: dict) -> list[str]:
    """Goals that were missed, of all shows."""
    return [goal for name, module in _PARTS if name in result for goal in module.missed(result[name])]


def markdown(result: dict) -> str:
    on = result["machine"]
    lines = [f"# Probes by UDP, {result['date']}", ""]
    for name, module in _PARTS:
        if name in result:
            lines += module.report(result[name])
    lines += [f"- goal missed: {each}" for each in result["missed"]] or ["- all goals are met"]
    lines += [
        f"- load average before: {on['load_before']}, after: {on['load_after']}; niceness of all processes: {result['priority']}",
        f"- taken by the hypervisor for others: {result['stolen']:.1%} of the time",
        f"- command: `{result['command']}`",
        f"- versions: {', '.join(result['versions'])}",
        f"- machine: {on['cores']} cores, {on['cpu']}, Linux {on['kernel']}; commit {result['commit']}",
        "",
    ]
    return "\n".join(lines)
