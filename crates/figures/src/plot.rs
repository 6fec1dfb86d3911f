//! Curves as an SVG drawing.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLORS: [&str; 8] =
    ["#0b6e4f", "#b3261e", "#c77700", "#3457d5", "#7b2d8b", "#555555", "#0097a7", "#8d6e63"];
const TICKS: u32 = 5;

/// A curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its points, in order.
    pub points: Vec<(f64, f64)>,
}

/// A drawing of curves over two axes that begin at 0.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The name of the horizontal axis.
    pub x: &'static str,
    /// The name of the vertical axis.
    pub y: &'static str,
    /// The curves.
    pub series: Vec<Series>,
}

impl Plot {
    /// The drawing.
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| series.points.iter());
        let (right, top) = (nice(all().map(|point| point.0)), nice(all().map(|point| point.1)));
        let x = |value: f64| LEFT + value / right * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let mut text = |at: (f64, f64), anchor: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>",
                at.0, at.1
            );
        };
        text((WIDTH / 2.0, 20.0), "middle", &self.title);
        text((x(right / 2.0), HEIGHT - 10.0), "middle", self.x);
        text((LEFT, TOP - 8.0), "middle", self.y);
        for tick in 0..=TICKS {
            let share = f64::from(tick) / f64::from(TICKS);
            text((x(right * share), HEIGHT - BOTTOM + 18.0), "middle", &number(right * share));
            text((LEFT - 6.0, y(top * share) + 4.0), "end", &number(top * share));
        }
        let mut names: Vec<(f64, usize)> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            names.extend(series.points.last().map(|point| (y(point.1), index)));
        }
        // Names that would cover one another move down.
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut last = 0.0;
        for (at, index) in names {
            last = f64::max(at, last + 14.0);
            let end = self.series[index].points.last().map_or(right, |point| point.0);
            text((x(end) + 8.0, last + 4.0), "start", &self.series[index].name);
        }
        let (bottom, end) = (y(0.0), x(right));
        let _ =
            writeln!(svg, "<path d=\"M{LEFT} {TOP} V{bottom:.1} H{end:.1}\" fill=\"none\" stroke=\"#444\"/>");
        for (index, series) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let points: Vec<String> =
                series.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            let line = points.join(" ");
            let _ = writeln!(
                svg,
                "<polyline points=\"{line}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
            );
            for point in &series.points {
                let (x, y) = (x(point.0), y(point.1));
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The least of 1, 2, 2.5, 5 and 10 times a power of ten that no value exceeds.
fn nice(values: impl Iterator<Item = f64>) -> f64 {
    let greatest = values.fold(0.0, f64::max).max(1e-9);
    let power = 10f64.powf(greatest.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|limit| *limit >= greatest).unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_and_every_curve_is_named() {
        let series = |name: &str, points| Series { name: name.to_owned(), points };
        let curves = vec![series("a<b", vec![(0.0, 1.0), (3.0, 17.0)]), series("c", vec![(3.0, 16.5)])];
        let plot = Plot { title: "t & u".to_owned(), x: "x", y: "y", series: curves };
        let svg = plot.svg();
        assert!(svg.contains(">a&lt;b<") && svg.contains(">c<") && svg.contains("t &amp; u"));
        let circles: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(circles.len(), 3);
        for circle in circles {
            let value = |name: &str| -> f64 {
                let rest = circle.split(&format!("{name}=\"")).nth(1).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            assert!((LEFT..=WIDTH - RIGHT).contains(&value("cx")), "{circle}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&value("cy")), "{circle}");
        }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let end = |value: f64| nice([value].into_iter());
        assert_eq!([17.0, 20.0, 21.0, 0.3, 99.0].map(end), [20.0, 20.0, 25.0, 0.5, 100.0]);
    }
}
