//! The page, as a browser gets it.

use super::{chart::LINE_PX, *};
use crate::bench::report::{Percentile, Point, Settings, Worst};

/// A report of two seconds, in which the texts of others look like HTML.
fn report() -> Report {
    let settings = Settings {
        servers: vec!["<script>alert(1)</script>".into()],
        store: None,
        policy: "\"api\" & <b>".into(),
        connections: 4,
        in_flight: 16,
        batch: 256,
        rate_per_s: None,
        keys: 1_000,
        distribution: "uniform".into(),
        cost: 1,
        seed: 1,
        threads: 2,
        warm_up_s: 1.0,
        duration_s: 2.0,
    };
    Report { version: "1.2.3", settings, measured: measured(), sweep: None }
}

fn measured() -> Measured {
    let point = |end_s: f64| Point {
        end_s,
        length_s: 0.5,
        checks: 500_000,
        allowed: 50_000,
        failed: 1,
        p50_us: 300,
        p99_us: 900,
        admitted_total: (100_000.0 * (end_s + 1.0)) as u64,
        promised_total: Some((100_000.0 * (end_s + 2.0)) as u64),
    };
    Measured {
        elapsed_s: 2.0,
        checks_per_s: 1_000_000.0,
        allowed: 200_000,
        denied: 1_800_000,
        errors: 4,
        first_error: Some("</td><img src=x>".into()),
        p50_us: 300,
        p99_us: 900,
        p999_us: 2_500,
        max_us: 4_000,
        worst_admitted_over_promised: Some(0.75),
        worst: Some(Worst {
            key: "key:00000000".into(),
            limit: "token-bucket:100/1s".into(),
            interval_us: 1_000_000,
            admitted: 150,
            promised: 200,
        }),
        watched_keys: 9,
        percentiles: [(0.0, 100), (50.0, 300), (99.0, 900), (99.9, 2_500), (100.0, 4_000)]
            .map(|(percentile, us)| Percentile { percentile, us })
            .to_vec(),
        series: [0.5, 1.0, 1.5, 2.0].map(point).to_vec(),
        ..Measured::default()
    }
}

fn page_of(report: &Report) -> String {
    page(report).expect("it is drawn into memory")
}

/// The part of a page that holds a figure.
fn figure_of<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<figure id=\"{id}\">")).expect("the figure");
    let end = page[start..].find("</figure>").expect("its end");
    &page[start..][..end]
}

/// How many lines are drawn in a figure, besides its axes.
fn lines(figure: &str) -> usize {
    figure.matches(&format!("stroke-width=\"{LINE_PX}\"")).count()
}

#[test]
fn every_plot_is_there_and_told_in_words() {
    let page = page_of(&report());
    for (id, count, text) in [
        ("throughput", 3, "1 M checks were decided a second on average: between 1 M and 1 M"),
        ("latency", 1, "Half of the calls took at most 300 us, 99 % at most 900 us, 99.9 % at most 2.5 ms"),
        ("promise", 2, "150 passed within 1 s where 200 may, 0.7500 of it"),
    ] {
        let figure = figure_of(&page, id);
        assert_eq!(lines(figure), count, "{id}");
        assert!(figure.contains(text), "{id}: {figure}");
    }
    assert!(page.contains("The promise was kept"));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = page_of(&report()).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in ["://", "src=\"", "href", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn texts_of_others_are_escaped() {
    let page = page_of(&report());
    for text in ["&lt;script&gt;alert(1)", "&quot;api&quot; &amp; &lt;b&gt;", "&lt;/td&gt;&lt;img src=x&gt;"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<b>") && !page.contains("<img"));
}

#[test]
fn every_colour_has_its_counterpart_in_the_dark() {
    let page = page_of(&report());
    let drawn = |attribute: &str| -> Vec<String> {
        let start = format!(" {attribute}=\"#");
        page.split(&start).skip(1).map(|rest| format!("svg [{attribute}=\"#{}\"]", &rest[..6])).collect()
    };
    for rule in [drawn("fill"), drawn("stroke")].concat() {
        assert!(STYLE.contains(&rule), "{rule}");
    }
}

#[test]
fn what_is_not_known_is_not_drawn() {
    let mut report = report();
    let measured = &mut report.measured;
    (measured.worst_admitted_over_promised, measured.worst) = (None, None);
    measured.series.iter_mut().for_each(|point| (point.promised_total, point.failed) = (None, 0));
    let page = page_of(&report);
    assert!(page.contains("Whether the promise was kept is not known"));
    assert_eq!((lines(figure_of(&page, "throughput")), lines(figure_of(&page, "promise"))), (2, 1));
}

#[test]
fn a_broken_promise_is_told_first() {
    let mut report = report();
    report.measured.worst_admitted_over_promised = Some(1.2);
    assert!(page_of(&report).contains("<p class=\"verdict broken\">The promise was broken"));
}

#[test]
fn a_report_of_nothing_is_a_page() {
    let report = Report { measured: Measured::default(), ..report() };
    assert_eq!(page_of(&report).matches("<svg").count(), 3);
}
