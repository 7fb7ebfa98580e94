"""The job file, from bytes to a `SubmitJob` command. Start at `job_spec.decode_job`."""
