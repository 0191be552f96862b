#!/bin/sh
# Be a network that takes no other packets than before: while the card that we are reached by has another MTU, nothing comes back to
# whoever reaches us. Says when that began and ended.
set -u
while :; do
    if [ "$(cat /sys/bus/pci/devices/0000:00:03.0/virtio*/net/*/mtu)" = 1500 ]; then
        ip route del blackhole 10.0.2.2/32 2>/dev/null && echo reached
    else
        ip route add blackhole 10.0.2.2/32 2>/dev/null && echo cut off
    fi
    sleep 0.2
done
