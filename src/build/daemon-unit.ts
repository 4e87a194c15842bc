import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Writes microvm.service into `folder` and returns its path. The unit runs the daemon of the program `microvm`. */
export function writeDaemonUnit(folder: string, microvm: string): string {
  mkdirSync(folder, { recursive: true })
  const path = join(folder, 'microvm.service')
  writeFileSync(path, daemonUnit(microvm))
  return path
}

function daemonUnit(microvm: string): string {
  return `[Unit]
Description=microVMs of this host
After=network.target

[Service]
Type=exec
ExecStart=${quoted(microvm)} daemon --state /var/lib/microvm
Restart=on-failure
# The holders of the machines are in the unit's cgroup. They live on, and the next daemon finds them.
KillMode=process
# The kernel may kill the QEMU of one machine for its memory; the daemon and the other machines go on.
OOMPolicy=continue
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576
# Compiled code, which starts the daemon sooner and with less memory.
CacheDirectory=microvm
Environment=NODE_COMPILE_CACHE=%C/microvm
NoNewPrivileges=yes
LockPersonality=yes
SystemCallArchitectures=native
# Left out on purpose: what gives the unit a mount namespace (ProtectSystem and others), because a restarted daemon
# would see other mounts than its machines; RestrictSUIDSGID, because guests set such modes in shared folders;
# ProtectClock and DevicePolicy, which hide /dev/kvm.

[Install]
WantedBy=multi-user.target
`
}

/** A word of a command line (systemd.service(5)). */
function quoted(word: string): string {
  return `"${word.replaceAll('%', '%%').replaceAll('$', '$$$$').replaceAll(/["\\]/g, '\\$&')}"`
}
