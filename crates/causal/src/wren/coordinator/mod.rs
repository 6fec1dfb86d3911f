//! The coordinator, hosted by a gateway.
use super::Node;
use super::setup::{Options, Topology};
use protocol::{Claim, Input, Now, Outputs};
use types::{Incarnation, ProcessId, RegionId, Rng};
/// A coordinator.
#[derive(Debug)]
pub struct Coordinator {
    claims: Vec<Claim>,
}
impl Coordinator {
    pub(super) fn new(_t: Topology, _r: RegionId, _p: ProcessId, _i: Incarnation, _o: Options) -> Self {
        Coordinator { claims: vec![] }
    }
    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }
    pub(super) fn step_one(
        &mut self,
        _n: Now,
        _i: Input<'_, Node>,
        _r: &mut Rng,
        _o: &mut Outputs<'_, Node>,
    ) {
    }
}
