//! The Kronecker graph of Graph500: an adjacency matrix that is the power of a small one, so that degrees follow a power
//! law (section 6.3).

/// Probabilities of an edge's quarter of the matrix: both halves low, one high, the other high; the rest is both high.
const QUARTERS: [f64; 3] = [0.57, 0.19, 0.19];

/// For every user, who follows them: `2^scale` users, about `edge_factor` followers each. Nobody follows anybody twice, or
/// themselves. Equal seeds make equal graphs.
pub(super) fn followers(scale: u32, edge_factor: u32, seed: u64) -> Vec<Vec<u32>> {
    let (users, mut random) = (1usize << scale, fastrand::Rng::with_seed(seed));
    let mut names: Vec<u32> = (0..users as u32).collect();
    random.shuffle(&mut names);
    let mut followers = vec![Vec::new(); users];
    for _ in 0..users as u64 * u64::from(edge_factor) {
        let (from, to) = edge(scale, &mut random);
        if from != to {
            followers[names[to] as usize].push(names[from]);
        }
    }
    for of in &mut followers {
        of.sort_unstable();
        of.dedup();
    }
    followers
}

/// One edge, before its ends are given names: bit by bit it goes to a quarter of what is left of the matrix.
fn edge(scale: u32, random: &mut fastrand::Rng) -> (usize, usize) {
    let (mut from, mut to) = (0, 0);
    for bit in 0..scale {
        let drawn = random.f64();
        let quarter = match drawn {
            _ if drawn < QUARTERS[0] => (0, 0),
            _ if drawn < QUARTERS[0] + QUARTERS[1] => (0, 1),
            _ if drawn < QUARTERS[0] + QUARTERS[1] + QUARTERS[2] => (1, 0),
            _ => (1, 1),
        };
        from |= quarter.0 << bit;
        to |= quarter.1 << bit;
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_fall_on_the_quarters_of_the_matrix_by_their_probabilities() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = [[0u32; 2]; 2];
        for _ in 0..100_000 {
            let (from, to) = edge(4, &mut random);
            counts[from >> 3][to >> 3] += 1;
        }
        for (found, share) in
            [(counts[0][0], 0.57), (counts[0][1], 0.19), (counts[1][0], 0.19), (counts[1][1], 0.05)]
        {
            assert!((f64::from(found) / 100_000.0 - share).abs() < 0.006, "{found}: {share}");
        }
    }

    /// How many different followers the users expect to whom an edge points with so many high bits: each of the others
    /// follows with the probability that one of all edges is theirs.
    fn expected(scale: i32, edges: f64, high: i32) -> f64 {
        let choose = |n: i32, k: i32| (0..k).fold(1.0, |all, i| all * f64::from(n - i) / f64::from(i + 1));
        let mut sum = 0.0;
        // Of the followers' bits so many are high where the user's is low, and where it is high.
        for at_low in 0..=scale - high {
            for at_high in 0..=high {
                let each = 0.57f64.powi(scale - high - at_low)
                    * 0.19f64.powi(at_low)
                    * 0.19f64.powi(high - at_high)
                    * 0.05f64.powi(at_high);
                let users = choose(scale - high, at_low) * choose(high, at_high);
                sum += users * (1.0 - (1.0 - each).powf(edges));
            }
        }
        sum
    }

    #[test]
    fn the_degrees_follow_a_power_law() {
        let graph = followers(12, 16, 1);
        let mut degrees: Vec<usize> = graph.iter().map(Vec::len).collect();
        degrees.sort_unstable_by(|a, b| b.cmp(a));
        let most = expected(12, 65_536.0, 0);
        assert!((degrees[0] as f64 - most).abs() < 5.0 * most.sqrt(), "{}, expected {most}", degrees[0]);
        // Twelve users have one high bit, and are the next.
        let next = expected(12, 65_536.0, 1);
        let found = degrees[1..13].iter().sum::<usize>() as f64 / 12.0;
        assert!((found - next).abs() < 5.0 * (next / 12.0).sqrt(), "{found}, expected {next}");
        let top: usize = degrees[..41].iter().sum();
        let edges: usize = degrees.iter().sum();
        assert!(
            top * 6 > edges,
            "a hundredth of the users has more than a sixth of the followers: {top} of {edges}"
        );
        assert!(
            degrees[2_048] <= 8,
            "half of all users have fewer than half the average: {}",
            degrees[2_048]
        );
    }

    #[test]
    fn a_seed_decides_the_graph() {
        assert_eq!(followers(8, 16, 3), followers(8, 16, 3));
        assert_ne!(followers(8, 16, 3), followers(8, 16, 4));
        let graph = followers(8, 16, 3);
        assert!(
            graph.iter().enumerate().all(|(user, of)| !of.contains(&(user as u32))),
            "nobody follows themselves"
        );
    }
}
