"""What the tests share: repositories, the program, disks, clocks, servers. A test imports it as `kit.<name>`."""
