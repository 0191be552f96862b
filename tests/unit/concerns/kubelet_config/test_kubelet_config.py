from kubelet_machine import *
def test_x(tmp_path):
    host, kubelet = machine(tmp_path)
    before = host.files.read(CONFIG)
    d = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1", "shutdown_grace_period": "2m"}
    out = run(host, d)
    print([ (c.object,c.setting,c.before,c.after,c.scope) for c in out.changes])
    print(host.files.read(CONFIG)); print(kubelet.order, kubelet.config)
    assert run(host, d).changes == ()
    run(host, {}, state="absent")
    assert host.files.read(CONFIG) == before
