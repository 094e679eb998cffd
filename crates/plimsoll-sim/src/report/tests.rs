//! Pages, figures and JSON as a whole.

use std::num::NonZeroUsize;

use super::*;
use crate::findings::{Axis, Figure, Series, SeriesKind};
use crate::run::{Of, Plotted, Summary, run};
use crate::scenario::{Scenario, built_in};

fn series(name: &str, kind: SeriesKind, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series { name: name.to_owned(), kind, points: points.into_iter().collect() }
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
        marks: Vec::new(),
    }
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
    let text = svg(&figure());
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
        svg(&Figure { series, ..figure() }).matches("<circle").count()
    };
    assert_eq!(only(&[(1.0, 0.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, 50.0)]), 2);
    assert_eq!(only(&[]), 0);
}

#[test]
fn bars_of_two_series_stand_side_by_side() {
    let bars = |name: &str| series(name, SeriesKind::Bars, [(1.0, 2.0), (2.0, 3.0)]);
    let y = Axis::linear("count", "");
    let text = svg(&Figure { y, series: vec![bars("a"), bars("b")], ..figure() });
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
