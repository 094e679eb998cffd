"""Puts the mutants that cargo-mutants lists into one copy of the code; a number chooses one at run time.

An operator becomes `(if mistake(7) { a - b } else { a + b })`, a function begins with
`if mistake(8) { return None; }`. So one build serves all mutants.
"""

import re
from dataclasses import dataclass, field

import tree_sitter
import tree_sitter_rust

RUST = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))


@dataclass
class Mutant:
    number: int
    name: str
    genre: str
    file: str
    start: tuple
    end: tuple
    replacement: str
    returns: str

    @staticmethod
    def of(number, listed):
        place, function = listed["span"], listed["function"] or {}
        start, end = ((place[side]["line"], place[side]["column"]) for side in ("start", "end"))
        return Mutant(number, listed["name"], listed["genre"], listed["file"], start, end, listed["replacement"], function.get("return_type", ""))


@dataclass
class Edits:
    """Of one file. A range has layers, the innermost first; each takes the text inside and returns the text around it."""

    layers: dict = field(default_factory=dict)
    inserts: dict = field(default_factory=dict)

    def wrap(self, node, layer):
        self.layers.setdefault((node.start_byte, node.end_byte), []).append(layer)

    def insert(self, at, text):
        self.inserts[at] = self.inserts.get(at, "") + text


def marked(number, code):
    """Code with marks, so that an error of the compiler leads to its mutant."""
    return f"/*<{number}*/ {code} /*{number}>*/"


def embed(text, mutants):
    """The code with its mutants in it, and those that have no place: in a constant, a pattern or a `let` chain."""
    source = text.encode()
    starts = [0] + [at + 1 for at, byte in enumerate(source) if byte == 10]
    tree = RUST.parse(source)
    edits, left, choices = Edits(), [], {}

    def offset(place):
        line, column = place
        begin = starts[line - 1]
        return begin + len(source[begin:].split(b"\n", 1)[0].decode()[: column - 1].encode())

    def code(node):
        return source[node.start_byte : node.end_byte].decode()

    for mutant in mutants:
        start, end = offset(mutant.start), offset(mutant.end)
        node = tree.root_node.descendant_for_byte_range(start, end)
        # `impl Trait` stands for one type, and the wrong code has another.
        if in_constant(node) or (mutant.genre == "FnValue" and "impl " in mutant.returns):
            left.append(mutant)
            continue
        match mutant.genre:
            case "FnValue":
                while node and not (node.type == "block" and node.parent.type == "function_item"):
                    node = node.parent
                wrong = marked(mutant.number, f"return {mutant.replacement};")
                edits.insert(node.start_byte + 1, f" if crate::mistake({mutant.number}) {{ {wrong} }}")
            case "BinaryOperator" if node.parent.type in ("binary_expression", "compound_assignment_expr"):
                sides = (node.parent.child_by_field_name(side) for side in ("left", "right"))
                left_code, right_code = (code(side) for side in sides)
                wrong = f"({left_code}) {mutant.replacement} ({right_code})"
                choices.setdefault((node.parent.start_byte, node.parent.end_byte), []).append((mutant.number, wrong))
            case "UnaryOperator" if node.parent.type == "unary_expression":
                choices.setdefault((node.parent.start_byte, node.parent.end_byte), []).append((mutant.number, code(node.parent.children[1])))
            case "MatchArmGuard":
                while node.parent and node.parent.type != "match_pattern":
                    node = node.parent
                if node.parent is None or node.type == "let_chain":
                    left.append(mutant)
                    continue
                chosen = f"crate::mistake({mutant.number})"
                before = f"{chosen} ||" if mutant.replacement == "true" else f"!{chosen} &&"
                edits.wrap(node, lambda inner, before=before: f"({before} ({inner}))")
            case "MatchArm":
                while node.type != "match_arm":
                    node = node.parent
                pattern = node.child_by_field_name("pattern")
                guard = pattern.child_by_field_name("condition")
                unless = f"!crate::mistake({mutant.number})"
                if guard:
                    edits.wrap(guard, lambda inner, unless=unless: f"({unless} && ({inner}))")
                else:
                    edits.insert(pattern.end_byte, f" if {unless} ")
            case _:
                left.append(mutant)

    for place, alternatives in choices.items():
        arms = " else ".join(f"if crate::mistake({number}) {{ {marked(number, wrong)} }}" for number, wrong in alternatives)
        layer = lambda inner, arms=arms: f"({arms} else {{ {inner} }})"
        edits.layers.setdefault(place, []).insert(0, layer)
    return render(source, edits), left


def in_constant(node):
    """In a constant, an array length or a pattern, where no run can choose."""
    while node:
        if node.type in ("const_item", "static_item", "array_type", "match_pattern") and not has_guard(node):
            return True
        if node.type == "function_item":
            return False
        node = node.parent
    return False


def has_guard(node):
    return node.type == "match_pattern" and node.child_by_field_name("condition") is not None


def render(source, edits):
    places = sorted(edits.layers, key=lambda place: (place[0], -place[1]))
    inserts = sorted(edits.inserts)

    def between(start, end, taken):
        """The text of a range; `taken` is the range that the caller itself wraps."""
        out, at = [], start
        inner = [place for place in places if start <= place[0] and place[1] <= end and place != taken]
        while inner:
            place = inner.pop(0)
            if place[0] < at:
                continue
            out.append(plain(at, place[0]))
            body = between(*place, place)
            for layer in edits.layers[place]:
                body = layer(body)
            out.append(body)
            at = place[1]
        out.append(plain(at, end))
        return "".join(out)

    def plain(start, end):
        out, at = [], start
        for insert in inserts:
            if start < insert <= end:
                out.append(source[at:insert].decode() + edits.inserts[insert])
                at = insert
        return "".join(out) + source[at:end].decode()

    return between(0, len(source), None)


def blamed(text, begin, end):
    """The mutants whose code an error of the compiler touches: the innermost around it, else those inside it."""
    data = text.encode()
    spans = []
    for mark in re.finditer(rb"/\*<(\d+)\*/", data):
        stop = data.find(b"/*" + mark[1] + b">*/", mark.end())
        spans.append((mark.start(), stop, int(mark[1])))
    around = [span for span in spans if span[0] <= begin and end <= span[1]]
    if around:
        return {max(around)[2]}
    return {number for start, stop, number in spans if begin <= start and stop <= end}
