import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

/** The test that shows this agent's behaviour for each row of the comparison, by file and part of its name. */
const SHOWN_BY: readonly (readonly [row: string, file: string, name: string])[] = [
  [
    'unknown [word](callers-words.md)',
    'test/oci/normalize-spec.test.ts',
    'leaves an unknown %s to the check',
  ],
  ['`..` in a path, except process.cwd', 'test/host/api/agent-bad-input.test.ts', 'an invalid request'],
  [
    'relative path of a root, namespace, device, hook, shared mount, process.cwd',
    'test/oci/check/check-spec.test.ts',
    'refuses, naming the field',
  ],
  ['resource limit given twice', 'test/oci/check/check-spec.test.ts', 'two limits of one kind'],
  ['terminal above 65535 rows or columns', 'test/host/api/agent-bad-input.test.ts', 'an invalid request'],
  ['negative hook time-out', 'test/oci/check/check-spec.test.ts', 'refuses a hook with a negative timeout'],
  [
    "another container's cgroup, or one above or below",
    'test/handlers/container/create-container.test.ts',
    'overlaps another container’s',
  ],
  [
    "cgroup with others' processes",
    'test/handlers/container/create-container.test.ts',
    'refuses a cgroup with other processes',
  ],
  [
    'mount point outside `/run/kata-containers`, or through a symbolic link',
    'test/handlers/storage/mount-point.test.ts',
    'checkMountPoint',
  ],
  ['huge-page volume smaller than a page', 'test/handlers/storage/drivers/ephemeral.test.ts', 'refuses %j'],
  [
    'writable layer for a sandbox storage',
    'test/handlers/storage/drivers/overlayfs.test.ts',
    'refuses a writable layer',
  ],
  [
    "wrong interface name or hardware address length; the loopback's name",
    'test/handlers/network/update-interface.test.ts',
    'refuses a wrong %s and changes',
  ],
  [
    'route or neighbour with a wrong field',
    'test/handlers/network/update-routes.test.ts',
    'refuses a wrong %s and names',
  ],
  ['CopyFile of a socket, device, fifo', 'test/host/api/agent-bad-input.test.ts', 'an invalid request'],
  ['more CPUs than possible', 'test/handlers/guest/online-cpus.test.ts', 'refuses at once more CPUs'],
  [
    'ReseedRandomDev, AddSwap, GetVolumeStats without entropy or path',
    'test/host/api/recordings.test.ts',
    'agent-ctl.every-command under its own policy',
  ],
  ['relative volume or swap path', 'test/handlers/guest/volume-stats.test.ts', 'refuses the path %j'],
  ['signal above 64', 'test/handlers/process/signal-process.test.ts', 'a signal above 64'],
  ['container id in use', 'test/host/container/agent-containers.test.ts', 'of one id are created'],
  ['second CreateSandbox', 'test/host/api/agent-errors.test.ts', 'CreateSandbox refuses a second sandbox'],
  [
    'container id above 255 characters, `sandbox`, `shared`',
    'test/handlers/container/create-container.test.ts',
    'says by which rule',
  ],
  [
    'unknown mount option of `ephemeral`',
    'test/handlers/storage/drivers/ephemeral.test.ts',
    'mounts with the size',
  ],
  [
    'unknown `X-kata.` layer option',
    'test/handlers/storage/drivers/mount-image.test.ts',
    'says that it does not know',
  ],
  [
    'storage encryption',
    'test/handlers/storage/drivers/mount-image.test.ts',
    'refuses a layer that should be encrypted',
  ],
  [
    'other storage for a used mount point',
    'test/handlers/storage/storage.test.ts',
    'refuses a storage of another',
  ],
  ['mounted storage whose disk is gone', 'test/handlers/storage/storage.test.ts', 'refuses a new reference'],
  ['SCSI address on two controllers', 'test/hotplug/scsi-disk.test.ts', 'is at more than one controller'],
  [
    'CopyFile chunk: gap, or beyond the size',
    'test/handlers/storage/file-copies.test.ts',
    'is not completed by a chunk',
  ],
  [
    'CopyFile: 65th unfinished file',
    'test/handlers/storage/file-copies.test.ts',
    'holds a limited number, and then refuses',
  ],
  [
    'module name beginning with a dash',
    'test/handlers/sandbox/create-sandbox.test.ts',
    'refuses the module name',
  ],
  ['ExecProcess while paused', 'test/host/api/agent-errors.test.ts', '$rpc when $when: $code'],
  [
    'message above 4 MiB',
    'test/host/api/agent-bad-input.test.ts',
    'RESOURCE_EXHAUSTED, and the connection stays open',
  ],
  ['above 65,536 elements', 'test/rpc/count-elements.test.ts', 'refuses too many %s, and names'],
  [
    'calls or bytes above the [limits](limits.md)',
    'test/agent/transport/limits.test.ts',
    'refuse calls of both framings',
  ],
  ['above 1,024 calls per connection', 'test/rpc/ttrpc/server-connection.test.ts', 'more calls at a time'],
  ['vsock not from CID 2', 'test/host/native/broker-limits.test.ts', 'a client of CID %i is closed'],
  [
    'agent without `vminit`',
    'test/host/api/transport.test.ts',
    'says what to do when vminit has not started it',
  ],
  ['memory limit -1', 'test/host/api/reference-bugs.test.ts', 'lifts a memory limit'],
  ['Pids.Limit', 'test/host/api/reference-bugs.test.ts', 'limits processes'],
  ['Hooks.Poststop', 'test/oci/runtime-config.test.ts', 'keeps each list of hooks'],
  ['[guest hooks](../api.md#hooks)', 'test/host/container/agent-hooks.test.ts', 'run in their order'],
  ['startContainer hooks', 'test/host/container/agent-hooks.test.ts', 'have the rights of the container'],
  ['seccomp errnoRet 0 or absent', 'test/host/api/reference-bugs.test.ts', 'refuses a system call'],
  [
    '[impossible](callers-words.md#what-the-guest-cannot-do) AppArmor profile, SELinux label',
    'test/host/container/agent-words.test.ts',
    'names what this machine',
  ],
  [
    'loaded AppArmor profile',
    'test/handlers/container/create-container.test.ts',
    'keeps each part that it has',
  ],
  [
    '[devices](../devices.md#which-devices-a-container-may-open), cgroup v2',
    'test/vm/agent/agent.test.ts',
    'lets containers open the nodes',
  ],
  [
    "containers' [vsock](../security.md#vsock), io_uring",
    'test/host/container/agent-vsock.test.ts',
    '%s makes no AF_VSOCK',
  ],
  ['oom_score_adj 0', 'test/host/container/container.test.ts', 'do not inherit the agent’s oom_score_adj'],
  ['device without mode', 'test/oci/runtime-config.test.ts', 'leaves the mode of a device'],
  ['config.json not writable', 'test/handlers/undo.test.ts', 'leaves nothing behind, whichever'],
  [
    'CreateContainer before CreateSandbox',
    'test/host/container/agent-namespaces.test.ts',
    'stay when a sandbox',
  ],
  ['exit status, waiter hung up', 'test/host/container/agent-waits.test.ts', 'is kept when its waiter'],
  ['last output', 'test/host/stdio/agent-stdio.test.ts', 'of a container return'],
  ['read past its deadline', 'test/host/stdio/agent-stdio.test.ts', 'lose nothing when a reader'],
  ['statistics of a hanging cgroup', 'test/host/container/agent-crowd.test.ts', 'while one creation hangs'],
  ['GetOOMEvent, creations', 'test/host/cgroup/agent-oom.test.ts', 'blocks no other call'],
  ['memory without limit', 'test/hostile/vm/memory.test.ts', 'is answered, killed and removed'],
  ['cgroup path', 'test/oci/container-spec.test.ts', 'puts the cgroups path'],
  ['exec, cgroup divided (v2)', 'test/vm/agent/agent-stats.test.ts', 'may be divided by the first process'],
  ['exec without waiter', 'test/host/container/agent-exec.test.ts', 'whose exit is not collected'],
  ['exec, own pid namespace', 'test/recordings/compare.test.ts', '$recording, lines $lines: $because'],
  [
    'exec after first process ended',
    'test/host/container/agent-exec.test.ts',
    'is refused at once in a container',
  ],
  [
    'second DestroySandbox',
    'test/host/container/agent-containers.test.ts',
    'removes running containers, answers',
  ],
  [
    'removal during another call',
    'test/handlers/container/remove-container.test.ts',
    'ends a creation in progress',
  ],
  ['removal, process unkillable', 'test/handlers/container/remove-container.test.ts', 'fails after 50 s'],
  [
    'DestroySandbox, virtio-fs server dead',
    'test/vm/devices/storage-drivers.test.ts',
    'whose virtio-fs is dead',
  ],
  [
    'hanging OCI runtime',
    'test/handlers/container/pause-container.test.ts',
    'leaves the container running and thawed',
  ],
  [
    'shared pid namespace ended',
    'test/host/container/agent-namespaces.test.ts',
    'is made anew by the next container',
  ],
  ['agent dies', 'test/host/recovery/agent-recovery.test.ts', 'continues, with its output'],
  ['`ephemeral` size, mode', 'test/handlers/storage/drivers/ephemeral.test.ts', 'mounts with the size'],
  ['second huge-page volume', 'test/handlers/storage/drivers/ephemeral.test.ts', 'adds to the pages'],
  ['later storage fails', 'test/handlers/storage/storage.test.ts', 'releases the earlier storages'],
  ['storage group, symbolic links', 'test/handlers/storage/ownership.test.ts', 'neither changes nor follows'],
  ['several VFIO devices', 'test/handlers/device/vfio-pci.test.ts', 'are bound to vfio-pci'],
  ['device already present', 'test/hotplug/block-device.test.ts', 'finds a disk that is already present'],
  [
    'ListInterfaces families',
    'test/handlers/network/list-interfaces.test.ts',
    'lists every link with its addresses',
  ],
  ["route's preferred source", 'test/handlers/network/update-routes.test.ts', 'takes a full address'],
  [
    "destination's host bits",
    'test/handlers/network/update-routes.test.ts',
    'reads %s as the %s destination',
  ],
  [
    'interface or routes partly fail',
    'test/handlers/network/update-interface.test.ts',
    'restores everything when any one of its changes',
  ],
  ['ResizeVolume', 'test/handlers/guest/resize-volume.test.ts', 'grows to the requested'],
  ['GetGuestDetails: device handlers', 'test/handlers/guest/details.test.ts', 'describes the agent'],
  [
    'concurrently copied files differing by extension',
    'test/host/storage/agent-copy-file.test.ts',
    'serves many files at once',
  ],
  [
    'copy over a link or small file',
    'test/host/storage/agent-copy-file.test.ts',
    'keeps a volume of Kubernetes',
  ],
  ['failed, unfinished copy', 'test/host/storage/agent-copy-file.test.ts', 'removes what it made'],
  ['throttled_time (v2)', 'test/handlers/cgroup/stats-v2.test.ts', 'reports CPU time and throttled'],
  ['cache, kernel memory (v2)', 'test/handlers/cgroup/stats-v2.test.ts', 'reports memory and swap'],
  ['unlimited swap (v2)', 'test/handlers/cgroup/stats-v2.test.ts', 'reports a missing limit'],
  ['mem-agent reclaim', 'test/vm/agent/agent-stats.test.ts', 'releases the file pages'],
  ['mem-agent settings out of range', 'test/host/api/agent-bad-input.test.ts', 'an invalid request'],
  ['MemAgentMemcgSet (v1)', 'test/vm/agent/cgroup-v1.test.ts', 'has compaction, but no reclaim of memory'],
  ['repeated OOM (v2)', 'test/vm/agent/agent-stats.test.ts', 'makes GetOOMEvent answer each time'],
  ['OOM event, caller hung up', 'test/host/cgroup/agent-oom.test.ts', 'is reported to the next caller'],
  ['rule operations', 'test/agent/service/policy.test.ts', 'answers INTERNAL for %s'],
  ['ReadStdout, ReadStderr', 'test/agent/service/wrapper.test.ts', 'runs a read, and answers'],
  [
    'rule fails, AllowRequestsFailingPolicy',
    'test/agent/service/policy.test.ts',
    'lets denied and unknown calls pass',
  ],
  ['policy line above 64 KiB', 'test/host/os/policy/os-policy.test.ts', 'may be 1 MB'],
  ['missing default policy file', 'test/agent/policy/policy-file.test.ts', 'is absent without a file'],
  [
    'agent dies, policy set by call',
    'test/host/native/vminit-wrapper.test.ts',
    'does not restart an agent that has forbidden',
  ],
]

describe('docs/reference/compatibility.md', () => {
  it('compares in the rows that have a test here', () => {
    expect(comparedRows()).toEqual(SHOWN_BY.map(([row]) => row))
  })

  it.each(SHOWN_BY)('names an existing test for: %s', (_row, file, name) => {
    expect(readFileSync(join(ROOT, file), 'utf8')).toContain(name)
  })
})

function comparedRows(): readonly string[] {
  const page = readFileSync(join(ROOT, 'docs/reference/compatibility.md'), 'utf8')
  const [, comparison = ''] = page.split('## Refused requests')
  return [...comparison.matchAll(/^\| (.+?) \| .*(?:\*\*break\*\*|visible|harmless) \|$/gm)].map(
    ([, row = '']) => row,
  )
}
