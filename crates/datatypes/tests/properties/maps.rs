//! A search on the map reads a few ranges of scores and finds what a look at every member finds.

use crate::properties::for_all;
use datatypes::geo::{Point, Shape};
use proptest::prelude::*;
use types::Rng;

/// Far from the poles, where Redis's boxes are too small for large shapes.
const NORTHERNMOST: f64 = 70.0;

fn point(rng: &mut Rng, longitudes: f64, around: f64) -> Point {
    let side = |rng: &mut Rng, most: f64| (rng.f64() * 2.0 - 1.0) * most;
    let latitude = (around + side(rng, 12.0)).clamp(-NORTHERNMOST, NORTHERNMOST);
    Point::new(side(rng, longitudes), latitude).expect("it is on the map")
}

fn shape() -> impl Strategy<Value = Shape> {
    let unit = prop_oneof![Just(1.0), Just(0.3048)];
    // From a meter to some hundred kilometers.
    let size = || (0.0..6.0f64).prop_map(|digits| 10f64.powf(digits));
    prop_oneof![
        (size(), unit.clone()).prop_map(|(radius, unit)| Shape::Circle { radius, unit }),
        (size(), size(), unit).prop_map(|(width, height, unit)| Shape::Box { width, height, unit }),
    ]
}

#[test]
fn the_ranges_of_a_search_have_every_point_in_its_shape() {
    for_all(400, (any::<u64>(), shape(), -60.0..60.0f64), |(seed, shape, around)| {
        let mut rng = Rng::with_seed(seed);
        let center = point(&mut rng, 150.0, around);
        let ranges = shape.score_ranges(center);
        prop_assert!(ranges.len() <= 9);
        // Around the center, at every distance that matters.
        for _ in 0..400 {
            let reach = 10f64.powf(rng.f64() * 7.0 - 6.0);
            let near_to = |degrees: f64, rng: &mut Rng| degrees + (rng.f64() * 2.0 - 1.0) * reach;
            let near =
                Point::new(near_to(center.longitude(), &mut rng), near_to(center.latitude(), &mut rng));
            let Some(near) = near else { continue };
            let score = near.score();
            let stored = Point::of_score(score);
            let listed = ranges.iter().filter(|range| range.contains(&score)).count();
            let inside = shape.distance_within(center, stored).is_some();
            prop_assert!(listed == 1 || !inside, "{:?} of {:?} around {:?}", stored, shape, center);
            prop_assert!(listed <= 1);
        }
        Ok(())
    });
}

#[test]
fn a_score_stands_for_a_point_within_a_cell() {
    for_all(2000, (-180.0..=180.0f64, -85.0..=85.0f64), |(longitude, latitude)| {
        let point = Point::new(longitude, latitude).expect("it is on the map");
        let stored = Point::of_score(point.score());
        prop_assert!(point.distance(stored) < 0.6, "{:?} became {:?}", point, stored);
        prop_assert_eq!(stored.score(), point.score());
        prop_assert_eq!(point.distance(stored), stored.distance(point));
        Ok(())
    });
}
