"""Whether plimsoll keeps its goals. A goal that could not be looked at is neither kept nor missed."""

from dataclasses import dataclass

from .rounds import SUBJECT


@dataclass
class Verdict:
    """One goal beside what was measured."""

    shape: str
    says: str
    got: float
    most: float

    @property
    def kept(self) -> bool:
        # To the two digits that are printed: the third is noise.
        return round(self.got, 2) <= self.most

    def __str__(self) -> str:
        return f"{self.shape}: {self.says} is {self.got:.2f}, {'at most' if self.kept else 'ABOVE'} {self.most:g}"


def of(shapes: dict[str, dict]) -> list[Verdict]:
    """All goals of all shapes that were measured."""
    found = []
    for name, shape in shapes.items():
        for against, most in shape["goals"].items():
            if "memory" in shape:
                for what, got in shape["memory"].get(against, {}).items():
                    found.append(Verdict(name, f"{against}, {what}, {shape['unit']}", got, most))
            elif against in shape["ratios"] and shape["ratios"][against]["subject"] == SUBJECT:
                found.append(Verdict(name, f"{SUBJECT} ÷ {against}", shape["ratios"][against]["median"], most))
    return found
