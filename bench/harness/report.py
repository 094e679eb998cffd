"""The result as Markdown: what is read in the repository."""

from . import verdict


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _cost_table(shape: dict) -> list[str]:
    subject = next(iter(shape["ratios"].values()))["subject"] if shape["ratios"] else None
    ratio_head = f" {subject} ÷ it, median (lowest–highest) |" if subject else ""
    lines = [
        f"| proxy | µs CPU/request | user | system |{ratio_head} requests/s | share of the core | p99 ms | MiB |",
        "|---|--:|--:|--:|" + ("--:|" if subject else "") + "--:|--:|--:|--:|",
    ]
    for label, row in shape["summary"].items():
        ratio = shape["ratios"].get(label)
        cell = f" {ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f}) |" if ratio else " |" * bool(subject)
        lines.append(
            f"| {label} | {row['cpu_us_per_request']:.2f} | {row['user_us_per_request']:.2f} "
            f"| {row['system_us_per_request']:.2f} |{cell} {row['requests_per_second']:.0f} | {row['core_share']:.0%} "
            f"| {_number(row['p99_ms'], '.2f')} | {row['resident_mib']:.1f} |"
        )
    return lines


def _syscall_table(shape: dict) -> list[str]:
    if not shape["syscalls"]:
        return []
    tool = next(iter(shape["syscalls"].values()))["tool"]
    lines = [f"| proxy | system calls/request | which ({tool}) |", "|---|--:|---|"]
    for label, row in shape["syscalls"].items():
        which = ", ".join(f"{name} {count:.2f}" for name, count in row["by_name"].items())
        lines.append(f"| {label} | {row['per_request']:.2f} | {which} |")
    return lines


def _memory_table(shape: dict) -> list[str]:
    keys = list(next(iter(shape["memory"].values()), {}))
    heads = " | ".join(f"{key}, {shape['unit']}" for key in keys)
    lines = [f"| proxy | {heads} |", "|---|" + "--:|" * len(keys)]
    for name, row in shape["memory"].items():
        lines.append(f"| {name} | {' | '.join(f'{row[key]:.1f}' for key in keys)} |")
    return lines


def _allocation_table(shape: dict) -> list[str]:
    lines = ["| traffic | allocations/request | bytes/request |", "|---|--:|--:|"]
    for row in shape["allocations"]:
        lines.append(f"| {row['name']} | {row['allocations_per_request']:.2f} | {row['bytes_per_request']:.0f} |")
    return lines


def said(shape: dict) -> str:
    """What loads the proxy, and what else there is to know of the shape."""
    parts = [shape.get("load"), f"TLS: {shape['tls']}" if shape.get("tls") else None, shape.get("note")]
    return " ".join(part.rstrip(".") + "." for part in parts if part)


def tables(shape: dict) -> list[list[str]]:
    """The figures of a shape, each table as its lines."""
    if "memory" in shape:
        found = [_memory_table(shape)]
    elif "allocations" in shape:
        found = [_allocation_table(shape)]
    else:
        found = [_cost_table(shape), _syscall_table(shape)]
    return [table for table in found if table]


def _shape(name: str, shape: dict) -> list[str]:
    lines = ["", f"## {shape['title']} (`{name}`)", "", said(shape)]
    for table in tables(shape):
        lines += ["", *table]
    for peer, reason in shape["absent"].items():
        lines += ["", f"{peer} has no part in this: {reason}."]
    return lines


def overview(result: dict) -> list[str]:
    """One line for each shape: what each proxy costs, those that have a second self left out."""
    shapes = {name: shape for name, shape in result["shapes"].items() if "summary" in shape}
    if len(shapes) < 2:
        return []
    names = [name for name in result["versions"] if any(name in shape["summary"] for shape in shapes.values())]
    lines = [f"| µs CPU/request | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
    for shape in shapes.values():
        rows = [shape["summary"].get(name) for name in names]
        cells = [_number(row and row["cpu_us_per_request"], ".1f") for row in rows]
        lines.append(f"| {shape['title']} | {' | '.join(cells)} |")
    return lines


def goals(result: dict) -> list[str]:
    """Each goal beside what was measured."""
    found = verdict.of(result["shapes"])
    if not found:
        return []
    lines = ["| goal | measured | at most | |", "|---|--:|--:|---|"]
    for each in found:
        kept = "kept" if each.kept else "**missed**"
        lines.append(f"| {each.shape}: {each.says} | {each.got:.2f} | {each.most:g} | {kept} |")
    return lines


def provenance(result: dict) -> list[str]:
    """What made the result, for the end of every form of it."""
    on = result["machine"]
    return [
        f"command: `{result['command']}`",
        f"commit: {result['commit']}",
        f"machine: {on['cpu']}, {on['cores']} cores, Linux {on['kernel']}, load average before {on['load_before']}",
        *(f"{name}: {version}" for name, version in result["versions"].items()),
        *(f"not measured, {name}: {reason}" for name, reason in result["missing"].items()),
        *(f"refused, {name}: {' '.join(reason.splitlines()[:2])}" for name, reason in result["refused"].items()),
    ]


def conditions(result: dict) -> str:
    """How the figures came about, in three sentences."""
    return (
        f"{result['rounds']} alternating rounds of {result['seconds']} s; the proxy alone on core "
        f"{result['proxy_core']}, load and backends on {', '.join(map(str, result['load_cores']))}. CPU is user + system "
        "of the proxy's processes from /proc over the run, divided by the requests the load counted. Each ratio is taken within one round; its "
        "median is told, and in brackets its range."
    )


def markdown(result: dict) -> str:
    lines = [f"# {result['title']}, {result['date']}", "", conditions(result)]
    for table in (goals(result), overview(result)):
        lines += ["", *table] if table else []
    for name, shape in result["shapes"].items():
        lines += _shape(name, shape)
    return "\n".join([*lines, "", *(f"- {line}" for line in provenance(result)), ""])
