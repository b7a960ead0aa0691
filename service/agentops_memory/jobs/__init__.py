"""What runs in the background beside a service, each job on a schedule of its own."""
