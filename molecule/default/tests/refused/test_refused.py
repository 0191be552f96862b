from typing import Any
import runs


def test_x(host: Any) -> None:
    print(
        host.check_output(
            "find /etc /var/lib/gpufleet -name '*gpufleet*' -o -path '*gpufleet*' -type f | xargs tail -n +1"
        )
    )
    print(
        host.check_output(
            "ls -la /run/gpufleet; systemctl --version; udevadm --help; ls /dev /sys/block /sys/class/nvme; cat /sys/kernel/mm/transparent_hugepage/*; mount | grep sys"
        )
    )
    print(runs.read())
    assert 0
