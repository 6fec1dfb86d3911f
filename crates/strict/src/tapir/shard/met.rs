//! Notes whom a proposal met on which key: only when it was refused or has to wait.

use super::Shard;
use crate::Part;
use crate::validation::Verdict;
use datatypes::Mode;
use protocol::{Heat, Meeting, Pair};
use types::TransactionId;

impl Shard {
    /// Which keys transactions meet on here.
    pub(in crate::tapir) fn heat(&self) -> &Heat {
        &self.heat
    }

    /// The same, to be reset.
    pub(in crate::tapir) fn heat_mut(&mut self) -> &mut Heat {
        &mut self.heat
    }

    /// Notes a refusal for this one of a part's invocations. One that only asks for a later timestamp is none.
    pub(super) fn note_refusal(
        &mut self,
        id: TransactionId,
        part: &Part,
        verdict: Verdict,
        hint: Option<u32>,
    ) {
        if matches!(verdict, Verdict::Abstain | Verdict::Abort)
            && let Some(index) = hint
        {
            self.note_meeting(id, part, index as usize, Meeting::Conflict);
        }
    }

    /// Notes what this invocation met: something prepared, or else what has committed since it looked.
    pub(super) fn note_meeting(&mut self, id: TransactionId, part: &Part, index: usize, meeting: Meeting) {
        let Some(invoked) = part.invocations.get(index) else { return };
        let Ok(access) = invoked.access() else { return };
        let Some(wanted) = access.invocation.mode() else { return };
        let mut prepared = self.prepared_on(&invoked.key, id);
        let met: Option<Mode> = prepared
            .find(|other| other.is_in_the_way_of(&access))
            .and_then(|other| other.access.invocation.mode());
        drop(prepared);
        self.heat.note(&invoked.key, Pair { wanted, met }, meeting);
    }
}
