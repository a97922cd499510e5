"""What a training tells, and who listens: `events` happen; `log` keeps them, `tensorboard` shows them, `curves` and
`drawing` make figures of what was kept."""
