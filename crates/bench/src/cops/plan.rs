//! What clients run (COPS, section 6.3): single puts and gets, on keys of their own group and of others close to it.

/// What all clients have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Groups of keys: one for each client.
    pub groups: u32,
    /// Keys of each, of which any is as likely as any other.
    pub keys: u32,
    /// How far a client goes beyond its own group: it draws a group by a normal distribution of this variance, in which each
    /// group is of width 1. With 0 it stays in its own.
    pub variance: f64,
    /// How many operations write ...
    pub puts: u32,
    /// ... for so many that read.
    pub gets: u32,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The number of its key.
    pub key: u32,
    /// True if it writes.
    pub is_put: bool,
}

impl Plan {
    /// How many keys there are in all.
    pub fn all_keys(&self) -> u32 {
        self.groups * self.keys
    }

    /// Draws an operation of a client. The groups of the last client and of the first are beside one another, so that all clients
    /// are alike.
    pub fn draw(&self, client: u32, random: &mut fastrand::Rng) -> Drawn {
        let distance = (self.variance.sqrt() * normal(random)).round();
        let group = (f64::from(client) + distance).rem_euclid(f64::from(self.groups)) as u32;
        let key = group.min(self.groups - 1) * self.keys + random.u32(..self.keys);
        Drawn { key, is_put: random.u32(..self.puts + self.gets) < self.puts }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), std::f64::consts::TAU * random.f64());
    radius * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { groups: 64, keys: 8, variance: 1.0, puts: 1, gets: 4 };

    /// The share of the draws of client 3 by the distance of the group from its own, and that of puts.
    fn shares(plan: Plan) -> (Vec<f64>, f64) {
        let mut random = fastrand::Rng::with_seed(1);
        let (draws, mut puts) = (20_000, 0);
        let mut by_distance = vec![0.0; 33];
        for _ in 0..draws {
            let Drawn { key, is_put } = plan.draw(3, &mut random);
            let distance = (key / plan.keys).abs_diff(3);
            by_distance[distance.min(plan.groups - distance) as usize] += 1.0 / f64::from(draws);
            puts += u32::from(is_put);
        }
        (by_distance, f64::from(puts) / f64::from(draws))
    }

    /// Figure 8: the area of a normal distribution over the width of each group.
    #[test]
    fn groups_are_drawn_by_a_stepped_normal_distribution() {
        let (own, puts) = shares(Plan { variance: 0.0, ..PLAN });
        assert!((own[0] - 1.0).abs() < 1e-6 && (puts - 0.2).abs() < 0.01, "{own:?} {puts}");
        let (near, _) = shares(PLAN);
        for (distance, share) in [(0, 0.383), (1, 0.483), (2, 0.121), (3, 0.012)] {
            assert!((near[distance] - share).abs() < 0.01, "{distance}: {near:?}");
        }
        let (far, _) = shares(Plan { variance: 1e6, ..PLAN });
        assert!(far[1..32].iter().all(|share| (share - 1.0 / 32.0).abs() < 0.01), "{far:?}");
    }
}
