//! Pages, figures and JSON as a whole.

use std::num::NonZeroUsize;

use super::*;
use crate::findings::{Axis, Figure, Level, Look, Series, SeriesKind};
use crate::run::{Of, Plotted, Summary, run};
use crate::scenario::{Scenario, built_in};

fn series(name: &str, kind: SeriesKind, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series { name: name.to_owned(), kind, points: points.into_iter().collect(), ..Series::default() }
}

/// A figure with all that could go wrong in a text, and every kind of series.
fn figure() -> Figure {
    let values = |factor: f64| (1..=12).map(move |i| (f64::from(i), f64::from(i * i) * factor));
    Figure {
        id: "all".to_owned(),
        title: "Title with <b>, & and \"quotes\", so long that it does not fit into one line of the figure at its size"
            .to_owned(),
        x: Axis::linear("backends <all>", "rank"),
        y: Axis::logarithmic("latency", "ms & more"),
        series: vec![
            series("line", SeriesKind::Line, values(1.0)),
            series("steps", SeriesKind::Steps, values(2.0)),
            series("points", SeriesKind::Points, values(4.0)),
            series("bars", SeriesKind::Bars, values(8.0)),
            series("more bars", SeriesKind::Bars, values(0.5)),
            series("nothing </svg>", SeriesKind::Line, []),
            series("no place", SeriesKind::Line, [(1.0, 0.0), (2.0, f64::NAN), (f64::INFINITY, 3.0)]),
            series("eighth", SeriesKind::Line, values(16.0)),
            series("ninth, dashed", SeriesKind::Line, values(32.0)),
        ],
        ..Figure::default()
    }
}

fn drawn(figure: Figure) -> String {
    svg(&Plotted { figure, of: Of::MeanOf(3) })
}

/// A figure of these series on linear axes.
fn plain(series: Vec<Series>) -> Figure {
    let (x, y) = (Axis::linear("x", ""), Axis::linear("y", ""));
    Figure { title: "plain".to_owned(), x, y, series, ..Figure::default() }
}

/// The texts of a document, in their order.
fn texts(document: &str) -> Vec<&str> {
    document
        .split("<text")
        .skip(1)
        .filter_map(|element| element.split_once('>')?.1.split('<').next())
        .map(str::trim)
        .collect()
}

/// The elements of XML-like text that are open at its end, and what is wrong with it.
fn open_elements(text: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    for piece in text.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("not closed: <{piece}"));
        let name = tag.split([' ', '\n', '/']).find(|name| !name.is_empty()).unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in another order");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && !["meta"].contains(&name) {
            open.push(name.to_owned());
        }
    }
    open
}

#[test]
fn a_figure_is_well_formed_and_says_what_its_axes_and_series_are() {
    let text = drawn(figure());
    assert_eq!(open_elements(&text), Vec::<String>::new(), "{text}");
    for part in
        ["backends &lt;all&gt; (rank)", "latency (ms &amp; more)", "nothing &lt;/svg&gt;", "more bars", "&lt;b&gt;"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn what_has_no_place_on_an_axis_is_left_out_and_the_rest_is_drawn() {
    let only = |points: &[(f64, f64)]| {
        let series = vec![series("", SeriesKind::Points, points.iter().copied())];
        drawn(Figure { series, ..figure() }).matches("<circle").count()
    };
    assert_eq!(only(&[(1.0, 0.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, 50.0)]), 2);
    assert_eq!(only(&[]), 0);
}

#[test]
fn bars_of_two_series_stand_side_by_side() {
    let bars = |name: &str| series(name, SeriesKind::Bars, [(1.0, 2.0), (2.0, 3.0)]);
    let y = Axis::linear("count", "");
    let text = drawn(Figure { y, series: vec![bars("a"), bars("b")], ..figure() });
    let attribute = |rectangle: &str, name: &str| -> f64 {
        let (_, rest) = rectangle.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    // The first two are the legend's.
    let mut spans: Vec<(f64, f64)> = text
        .split("<rect")
        .skip(3)
        .map(|rectangle| (attribute(rectangle, "x"), attribute(rectangle, "x") + attribute(rectangle, "width")))
        .collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(spans.len(), 4);
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1.0), "{spans:?}");
}

#[test]
fn figure_says_which_runs_it_is_of() {
    let plotted = |of| Plotted { figure: plain(Vec::new()), of };
    for (of, words) in
        [(Of::MeanOf(3), "mean of 3 seeds"), (Of::MaxOf(2), "maximum of 2 seeds"), (Of::Seed(7), "seed 7")]
    {
        let text = svg(&plotted(of));
        assert!(texts(&text).contains(&words), "{of:?}: {text}");
    }
}

#[test]
fn line_that_hides_an_earlier_one_says_so_in_the_legend() {
    let line = |name: &str, y: f64| series(name, SeriesKind::Steps, (1..=60).map(move |i| (f64::from(i), y)));
    let text = drawn(plain(vec![line("a", 10.0), line("b", 10.001), line("c", 0.0)]));
    let names = texts(&text);
    assert!(names.contains(&"b (same as a)") && names.contains(&"c") && names.contains(&"a"), "{names:?}");
}

#[test]
fn steps_reach_half_a_position_beyond_their_points() {
    let text = drawn(plain(vec![series("a", SeriesKind::Steps, [(1.0, 1.0), (2.0, 5.0)])]));
    let corners = |line: &str| -> Vec<f64> {
        let (_, points) = line.split_once("points=\"").expect("it has points");
        let points = points.split('"').next().unwrap().split_whitespace();
        points.map(|point| point.split(',').next().unwrap().parse().unwrap()).collect()
    };
    let line = text.split("<polyline").map(|line| line.to_owned()).filter(|line| line.contains("#2F7FD1"));
    let [_, line] = &line.collect::<Vec<_>>()[..] else { panic!("the key and the line: {text}") };
    let [left, middle, same, right] = corners(line)[..] else { panic!("four corners: {line}") };
    assert_eq!((same, (2.0 * middle - left - right).abs() <= 1.0), (middle, true), "{line}");
    assert!(right - left > 600.0, "both have half of the plot: {line}");
}

#[test]
fn few_positions_have_the_marks_of_the_axis() {
    let of = |positions: &[f64]| {
        let points = positions.iter().map(|x| (*x, 1.0 + x));
        let text = drawn(plain(vec![series("a", SeriesKind::Line, points)]));
        texts(&text).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let marked = of(&[9.0, 12.0, 15.0, 18.0, 21.0]);
    assert!(["9", "12", "18", "21"].iter().all(|mark| marked.contains(&(*mark).to_owned())), "{marked:?}");
    let close = of(&[1.0, 1.1, 50.0]);
    assert!(!close.contains(&"1.1".to_owned()), "two marks would meet: {close:?}");
}

#[test]
fn level_within_the_axis_is_drawn_with_its_name() {
    let figure = |at| Figure {
        levels: vec![Level { at, label: "objective".to_owned() }],
        ..plain(vec![series("a", SeriesKind::Line, [(0.0, 0.0), (1.0, 100.0)])])
    };
    assert!(texts(&drawn(figure(50.0))).contains(&"objective"));
    assert!(!texts(&drawn(figure(500.0))).contains(&"objective"));
}

#[test]
fn series_has_its_own_colour_and_dashes() {
    let look = |colour, dashed| {
        let one = Series { look: Look { colour, dashed }, ..series("a", SeriesKind::Line, [(0.0, 0.0), (1.0, 1.0)]) };
        drawn(plain(vec![one]))
    };
    assert!(look(None, false).contains("#2F7FD1") && look(Some(2), false).contains("#1F9567"));
    assert!(look(None, true).matches("<polyline").count() > look(None, false).matches("<polyline").count() + 20);
}

fn summary(scenario: &Scenario) -> Summary {
    run(scenario, NonZeroUsize::MIN, &|_| {}).unwrap_or_else(|error| panic!("{error}"))
}

fn small() -> Scenario {
    built_in().into_iter().find(|scenario| scenario.name == "subset-small").expect("it comes with the binary")
}

#[test]
fn the_page_is_one_well_formed_file_that_asks_for_nothing_else() {
    let mut scenario = small();
    scenario.title = "A <script>alert(1)</script> title".to_owned();
    scenario.says = "One.\n\nTwo & three.".to_owned();
    let mut summary = summary(&scenario);
    summary.figures.push(Plotted { figure: figure(), of: Of::MeanOf(3) });
    let text = page(&[section(&scenario, &summary)]);
    assert_eq!(open_elements(&text), Vec::<String>::new());
    for part in ["<p>One.</p>", "<p>Two &amp; three.</p>", "&lt;script&gt;", "mean of 3 seeds"] {
        assert!(text.contains(part), "no {part}");
    }
    for foreign in ["<script", "<link", "<img", "src=", "url(", "@import", "href=\"http"] {
        assert!(!text.contains(foreign), "{foreign} asks for something else");
    }
}

fn section<'s>(scenario: &'s Scenario, summary: &'s Summary) -> Section<'s> {
    Section { scenario, summary, origin: Origin::BuiltIn, command: "plimsoll sim run x" }
}

#[test]
fn page_of_own_scenarios_has_their_names_as_title() {
    let scenario = small();
    let summary = summary(&scenario);
    let built_in = section(&scenario, &summary);
    let own = Section { origin: Origin::Own, command: "plimsoll sim run 'my <file>.toml'", ..built_in };
    let title = |sections: &[Section<'_>]| {
        let text = page(sections);
        let (_, rest) = text.split_once("<title>").unwrap();
        rest.split_once("</title>").unwrap().0.to_owned()
    };
    assert_eq!(title(&[own]), "subset-small");
    assert_eq!(title(&[own, own]), "subset-small, subset-small");
    assert!(title(&[built_in]).starts_with("Plimsoll: "));
    assert!(page(&[own]).contains("<code>plimsoll sim run &#39;my &lt;file&gt;.toml&#39;</code>"));
    assert!(!page(&[own]).contains("<nav") && page(&[own, own]).contains("href=\"#subset-small\""));
}

#[test]
fn page_shows_metrics_and_no_heading_when_nothing_is_checked() {
    let mut scenario = small().with_seeds(vec![1, 2, 3]);
    let checked = page(&[section(&scenario, &summary(&scenario))]);
    assert!(checked.contains("<th class=\"number\">min to max</th>") && !checked.contains("no checks"));
    scenario.checks.clear();
    let text = page(&[section(&scenario, &summary(&scenario))]);
    assert!(text.contains("<p>This scenario has no checks.</p>") && text.contains("Checks: none."), "{text}");
    assert!(!text.contains("<th>check</th>") && text.contains("<details open>"), "{text}");
    let heads =
        "<th>metric</th><th class=\"number\">mean</th><th class=\"number\">min</th><th class=\"number\">max</th>";
    assert!(text.contains(heads), "{text}");
    assert_eq!(open_elements(&text), Vec::<String>::new());
}

#[test]
fn json_has_the_promised_form() {
    let scenario = small();
    let text = json(&summary(&scenario));
    let root: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&String> = root.as_object().unwrap().keys().collect();
    let mut sorted = ["scenario", "seeds", "metrics", "checks"];
    sorted.sort_unstable();
    assert_eq!(keys, sorted);
    assert_eq!(root["scenario"], "subset-small");
    assert_eq!(root["seeds"], serde_json::json!([1]));
    assert_eq!(root["metrics"]["deterministic.10x12x3.least"], 2.0);
    let check =
        serde_json::json!({"name": "deterministic.10x12x3.least", "got": 2.0, "low": 2.0, "high": 2.0, "ok": true});
    assert_eq!(root["checks"][0], check);
}
