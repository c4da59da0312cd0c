//! Lines over an axis, drawn as SVG.

use std::io;

use plotters::prelude::*;

use super::axis::Axis;

/// Twice of what is shown at most: places are whole pixels, and curves would look jagged.
const WIDTH: u32 = 1_800;
const HEIGHT: u32 = 640;

const TEXT_PX: u32 = 28;

/// Lines of the data are the only ones of this width.
pub(super) const LINE_PX: u32 = 4;

// The style sheet knows these colours and replaces them where the page is dark.
const INK: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
const COLOURS: [RGBColor; 3] =
    [RGBColor(0x00, 0x72, 0xb2), RGBColor(0xd5, 0x5e, 0x00), RGBColor(0xa4, 0x0e, 0x26)];

/// Lines and their axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// At most three.
    pub(super) lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Values on both axes.
    pub(super) points: Vec<(f64, f64)>,
}

impl Chart {
    /// The chart as an element of HTML.
    ///
    /// # Errors
    /// None in practice: it is drawn into memory.
    pub(super) fn to_svg(&self) -> io::Result<String> {
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT))).map_err(io::Error::other)?;
        Ok(svg)
    }

    fn draw(&self, backend: SVGBackend<'_>) -> Result<(), DrawingAreaErrorKind<io::Error>> {
        let area = backend.into_drawing_area();
        let Self { x, y, lines } = self;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .margin_right(64)
            .x_label_area_size(96)
            .y_label_area_size(124)
            .build_cartesian_2d(x.clone(), y.clone())?;
        let text = ("sans-serif", TEXT_PX).into_font().color(&INK);
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(GRID.stroke_width(2))
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(x.name)
            .draw()?;
        for (line, colour) in lines.iter().zip(COLOURS) {
            let points = line.points.iter().copied();
            chart.draw_series(LineSeries::new(points, colour.stroke_width(LINE_PX)))?;
        }
        area.present()
    }
}
