//! A report as one page that needs nothing else: no network, no script.

mod axis;
mod chart;
mod figures;
#[cfg(test)]
mod tests;

use std::io;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::{
    axis::{short, time},
    figures::{Figure, figures},
};
use super::{
    report::{Measured, Report},
    table,
};

const STYLE: &str = include_str!("page.css");

/// The page.
///
/// # Errors
/// None in practice: it is drawn into memory.
pub fn page(report: &Report) -> io::Result<String> {
    let figures = figures(report).iter().map(figure).collect::<io::Result<Vec<_>>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Load test by Tollgate " (report.version) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Load test" }
                    (verdict(&report.measured))
                    (key_figures(&report.measured))
                    (details(report))
                    @for figure in figures { (figure) }
                    (percentiles(&report.measured))
                    footer { "Made by tollgate bench " (report.version) }
                }
            }
        }
    };
    Ok(page.into_string())
}

/// Whether the limits were kept.
fn verdict(measured: &Measured) -> Markup {
    let (class, text) = match measured.worst_admitted_over_promised {
        Some(ratio) if ratio > 1.0 => {
            ("broken", "The promise was broken: more passed than the limits let pass.")
        }
        Some(_) => {
            ("kept", "The promise was kept: of no key that was watched more passed than its limits let pass.")
        }
        None => ("unknown", "Whether the promise was kept is not known."),
    };
    html! { p.verdict.(class) { (text) } }
}

/// What readers look for first.
fn key_figures(measured: &Measured) -> Markup {
    let ratio = measured.worst_admitted_over_promised.map_or("-".into(), |ratio| format!("{ratio:.4}"));
    let figures = [
        ("checks/s", short(measured.checks_per_s)),
        ("p50 of a call", time(measured.p50_us as f64)),
        ("p99", time(measured.p99_us as f64)),
        ("p99.9", time(measured.p999_us as f64)),
        ("worst admitted over promised", ratio),
    ];
    html! {
        dl.key-figures {
            @for (name, figure) in figures { div { dt { (name) } dd { (figure) } } }
        }
    }
}

fn figure(figure: &Figure) -> io::Result<Markup> {
    let Figure { id, title, text, chart } = figure;
    let (title_id, text_id) = (format!("{id}-title"), format!("{id}-text"));
    let svg = chart.to_svg()?;
    Ok(html! {
        figure id=(id) {
            h2 id=(title_id) { (title) }
            @if chart.lines.len() > 1 {
                ul.legend { @for line in &chart.lines { li { (line.name) } } }
            }
            div role="img" aria-labelledby=(title_id) aria-describedby=(text_id) { (PreEscaped(svg)) }
            figcaption id=(text_id) { (text) }
        }
    })
}

/// All settings and results.
fn details(report: &Report) -> Markup {
    html! {
        h2 { "Settings and results" }
        table {
            tbody {
                @for [name, text] in table::rows(report) { tr { th scope="row" { (name) } td { (text) } } }
            }
        }
    }
}

fn percentiles(measured: &Measured) -> Markup {
    html! {
        details {
            summary { "All percentiles" }
            table.numbers {
                thead { tr { th scope="col" { "percentile" } th scope="col" { "time of a call, us" } } }
                tbody {
                    @for percentile in &measured.percentiles {
                        tr { td { (percentile.percentile) } td { (percentile.us) } }
                    }
                }
            }
        }
    }
}
