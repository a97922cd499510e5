"""Attribution: rollout, flow, norm-based attention, gradients, integrated gradients, value zeroing, head statistics."""
