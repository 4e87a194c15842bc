import { describe, expect, it } from 'vitest'
import type { ShownCapability } from '../../../src/ctl/commands/observe/agent.ts'
import { type Findings, lacksIn, suspicionsIn } from '../../../src/ctl/commands/observe/doctor/suspicions.ts'
import type { ShownProcess } from '../../../src/ctl/commands/observe/processes.ts'
import {
  Call,
  Capability,
  Container,
  Device,
  Exit,
  FailedCall,
  GetLoopHistogramResponse,
  GetSandboxResponse,
  Process,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'

const NOTHING: Findings = {
  sandbox: undefined,
  calls: undefined,
  failed: undefined,
  containers: undefined,
  processes: undefined,
  exits: undefined,
  capabilities: undefined,
  devices: undefined,
  events: undefined,
  loop: undefined,
  metrics: undefined,
  network: undefined,
  stacks: undefined,
  clockAheadMs: undefined,
  untold: {},
}

const capability = (known: Partial<ShownCapability>) => ({ ...Capability.create(), kind: '', ...known })
const disk = (name: string) => ({ ...Device.create(), kind: 'BLOCK', name })

const process = (known: Partial<ShownProcess>) => {
  return { ...Process.create(), containerId: 'web', role: 'EXEC', ...known }
}
const writer = process({ role: 'OTHER', name: 'yes', pid: 7, waitsIn: 'anon_pipe_write' })

const create = 'grpc.AgentService/CreateContainer'
const failed = (error: string, fields: Partial<FailedCall> = {}): Partial<Findings> => ({
  failed: [
    FailedCall.fromPartial({
      ...{ method: create, containerId: 'web', code: 'INTERNAL', error, ageMs: 9000n },
      ...fields,
    }),
  ],
})
const missing = (name: string, reason: string): Partial<Findings> => ({
  capabilities: [capability({ kind: 'FEATURE', name, reason })],
})
const memory = (available: number) =>
  `kata_guest_meminfo{item="mem_available"} ${available}\nkata_guest_meminfo{item="mem_total"} 1000\n`

describe('what doctor finds suspicious', () => {
  it.each<[string, Partial<Findings>, readonly string[]]>([
    ['nothing of an agent that has told nothing', {}, []],
    [
      'an agent that was restarted',
      { sandbox: GetSandboxResponse.fromPartial({ agentRestarts: 2, agentUptimeMs: 9000n }) },
      ['the agent died and was restarted 2 times, the last time 9s ago: its log tells why'],
    ],
    [
      'a frozen pod',
      {
        sandbox: GetSandboxResponse.fromPartial({
          frozen: { containers: ['a', 'b'], fileSystems: ['/data'], thawInMs: 9000n },
        }),
      },
      ['the pod is frozen (2 containers, 1 file systems), for 9s at most: agent-ctl thaw'],
    ],
    [
      'a call that hangs, with its step',
      {
        calls: [
          Call.fromPartial({
            method: create,
            containerId: 'web',
            ageMs: 7000n,
            step: 'device PCI 02/0f',
            stepAgeMs: 6000n,
          }),
        ],
      },
      ['CreateContainer of web hangs for 7s, for 6s of it in step device PCI 02/0f'],
    ],
    [
      'no call that waits for an exit',
      { calls: [Call.fromPartial({ method: create, ageMs: 70_000n, step: 'exit web' })] },
      [],
    ],
    [
      'a guest without limits',
      missing('limits of containers', 'cgroup v1 has no controller for memory'),
      [
        "limits of containers are refused: remove systemd.unified_cgroup_hierarchy=0, cgroup_no_v1= or cgroup_disable= from the kernel's command line (cgroup v1 has no controller for memory)",
      ],
    ],
    [
      'a debug console without a shell',
      missing('debug console', 'no shell: /bin/sh: not found; want one: npm run image'),
      ['the debug console has no shell: /bin/sh: not found; want one: npm run image'],
    ],
    ['no debug console that is off', missing('debug console', 'agent.debug_console is not set'), []],
    [
      'a storage that never came',
      failed('Timeout after 1s waiting for uevent of a block device at PCI path 02/0f: no bus', {
        code: 'DEADLINE_EXCEEDED',
      }),
      [
        'a storage or device never came: compare its path with agent-ctl devices; was it plugged in, has it a driver? (CreateContainer of web failed 9s ago: Timeout after 1s waiting for uevent of a block device at PCI path 02/0f: no bus)',
      ],
    ],
    [
      'a port on which the host does not listen',
      failed('stdout: port 5999 of the host: no listener: no answer within 2 s', { code: 'UNAVAILABLE' }),
      [
        'the host does not listen on a port: look whether the process at its end still runs, and listens there (CreateContainer of web failed 9s ago: stdout: port 5999 of the host: no listener: no answer within 2 s)',
      ],
    ],
    [
      'a hook that failed',
      failed('error running hook: exit status 3 (hook #0: createRuntime /bin/pull)'),
      [
        "a hook failed: run its program by itself in the guest; what it wrote is in the agent's log (CreateContainer of web failed 9s ago: error running hook: exit status 3 (hook #0: createRuntime /bin/pull))",
      ],
    ],
    [
      'a file system that the kernel lacks',
      failed('storage /run/x: the guest kernel has no overlay: mount /run/x: ENODEV'),
      [
        'the kernel lacks an option: take a kernel with it, built in or as a module that modprobe finds (CreateContainer of web failed 9s ago: storage /run/x: the guest kernel has no overlay: mount /run/x: ENODEV)',
      ],
    ],
    [
      'a failure of the guest without a known cause, by its own words',
      failed('mount /run/x: EIO'),
      ['CreateContainer of web failed 9s ago: mount /run/x: EIO'],
    ],
    ['no mistake of a caller', failed('Invalid container id', { callerFault: true }), []],
    ['no deadline that has passed', failed('timeout', { code: 'DEADLINE_EXCEEDED' }), []],
    ['no failure of yesterday', failed('mount /run/x: EIO', { ageMs: 86_400_000n }), []],
    ['no young call', { calls: [Call.fromPartial({ method: create, ageMs: 70n, step: 'device' })] }, []],
    [
      'a process that was killed because memory ran out',
      { exits: [Exit.fromPartial({ containerId: 'web', execId: 'x', signal: 9, oomKilled: true })] },
      ['web/x was killed because memory ran out: signal 9, out of memory, 1970-01-01T00:00:00.000Z'],
    ],
    [
      'a crash',
      { exits: [Exit.fromPartial({ containerId: 'web', signal: 11 })] },
      ['web crashed: signal 11, 1970-01-01T00:00:00.000Z'],
    ],
    [
      'no process that was ended by a signal',
      { exits: [Exit.fromPartial({ containerId: 'web', signal: 15 })] },
      [],
    ],
    [
      'a late event loop',
      { loop: GetLoopHistogramResponse.fromPartial({ p99Us: 300_000n, utilizationPercent: 99.4 }) },
      ["the agent's event loop is late by 300ms and busy for 99 % of the time"],
    ],
    [
      'a process that waits for a reader of its output',
      { processes: [process({ execId: 'x', unreadMs: 45_000n }), writer] },
      [
        'nobody has read the output of web/x for 45s, and yes (pid 7) waits in pipe_write: agent-ctl attach web x reads it',
      ],
    ],
    [
      'no process that waits for a process, or for a reader who was just there',
      {
        processes: [
          writer,
          process({ unreadMs: 9000n }),
          process({ containerId: 'db', unreadMs: 45_000n, waitsIn: 'do_wait' }),
        ],
      },
      [],
    ],
    [
      'a paused container',
      { containers: [Container.fromPartial({ containerId: 'web', state: 'paused' })] },
      ['web is paused: agent-ctl ResumeContainer container_id=web lets it go on'],
    ],
    [
      'a clock that is ahead',
      { clockAheadMs: 3_661_000 },
      [
        "the guest's clock is 1h01m ahead of this machine's: agent-ctl SetGuestDateTime sec=$(date +%s) sets it",
      ],
    ],
    [
      'a clock that is behind',
      { clockAheadMs: -6000 },
      ["the guest's clock is 6s behind this machine's: agent-ctl SetGuestDateTime sec=$(date +%s) sets it"],
    ],
    ['no clock that is right within seconds', { clockAheadMs: -4000 }, []],
    ['little memory', { metrics: memory(12) }, ["only 1.2 % of the guest's memory is available"]],
    ['no ordinary use of memory', { metrics: memory(200) }, []],
    ['a disk without a driver', { devices: [disk('vdb')] }, ['disk vdb has no driver']],
    [
      'one reason for all that was not told',
      {
        untold: {
          sandbox: 'GetSandbox: INTERNAL: the agent did not boot',
          exits: 'ListExits: INTERNAL: the agent did not boot',
        },
      },
      ['not told: sandbox, exits: INTERNAL: the agent did not boot'],
    ],
    [
      'names without control characters',
      { devices: [disk('v\u001b[2J')] },
      ['disk v\\u001b[2J has no driver'],
    ],
  ])('is %s', (_what, found, lines) => {
    expect(suspicionsIn({ ...NOTHING, ...found })).toEqual(lines)
  })

  it('excludes what most guests lack, which is reported after it', () => {
    const capabilities = [
      capability({ kind: 'KERNEL', name: 'fw_cfg', reason: 'no driver' }),
      capability({ kind: 'TOOL', name: '/sbin/modprobe', reason: 'does not exist' }),
      capability({ kind: 'KERNEL', name: 'vsock', enabled: true }),
      capability({ kind: 'STORAGE_DRIVER', name: 'scsi', reason: 'none' }),
    ]
    const found = { ...NOTHING, capabilities }
    expect(suspicionsIn(found)).toEqual([])
    expect(lacksIn(found)).toEqual([
      'the kernel lacks fw_cfg: no driver',
      'the guest lacks /sbin/modprobe: does not exist',
    ])
  })
})
