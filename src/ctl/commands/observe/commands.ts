import type { Argument, Command } from '../../command.ts'

const ONLY: Argument = {
  name: 'CONTAINER',
  summary: 'only this container',
  optional: true,
  completes: 'container',
}

export const observeCommands: readonly Command[] = [
  {
    name: 'ps',
    group: 'observe',
    summary: 'list the containers and their processes',
    details: ['Processes that the agent has started itself, and the agent, are shown with --all.'],
    arguments: [ONLY],
    options: [{ name: 'all', summary: "the agent's own processes, too" }],
    examples: [
      ['ps', 'list all processes of containers'],
      ['-o json ps web', 'those of one container, for a program'],
    ],
    load: async () => ({ run: (await import('./processes.ts')).runPs }),
  },
  {
    name: 'stats',
    group: 'observe',
    summary: 'show what containers use: CPU, memory, processes, disks',
    arguments: [{ ...ONLY, summary: 'only these containers', repeated: true }],
    options: [
      {
        name: 'watch',
        value: 'SECONDS',
        kind: 'optional',
        accepts: /^\d+(\.\d+)?$/,
        summary: 'again every second or as given, with the share of a CPU and its chart',
      },
    ],
    examples: [
      ['stats', 'all containers, once'],
      ['stats --watch web', 'one, again and again'],
    ],
    load: () => import('./stats.ts'),
  },
  {
    name: 'calls',
    group: 'observe',
    summary: 'list the calls that the agent has not answered yet, with their age and the step they are in',
    examples: [['calls', 'see what hangs']],
    load: async () => ({ run: (await import('./agent.ts')).runCalls }),
  },
  {
    name: 'events',
    group: 'observe',
    summary: 'show what has happened: starts, exits, out of memory, devices, storages, network, clock',
    details: [
      'The agent holds the last 1,024 events. Events that were missed are told as a gap. With --follow the command ends by a signal.',
    ],
    options: [
      { name: 'follow', short: 'f', summary: 'wait for further events' },
      { name: 'after', value: 'NUMBER', summary: 'only events with higher sequence numbers' },
    ],
    examples: [
      ['events -f', 'watch a guest'],
      ['-o json events --after 1200', 'go on where a program has stopped'],
    ],
    load: () => import('./events.ts'),
  },
  {
    name: 'inspect',
    group: 'observe',
    summary: 'show the sandbox and its containers, or all about one container, as JSON',
    arguments: [{ ...ONLY, summary: 'the container' }],
    examples: [['inspect web', 'state, processes, storages and exits of a container']],
    load: async () => ({ run: (await import('./processes.ts')).runInspect }),
  },
  {
    name: 'net',
    group: 'observe',
    summary: 'list interfaces, addresses and routes, and who has set them',
    examples: [['net', 'see what metadata, calls and the kernel have set']],
    load: async () => ({ run: (await import('./guest.ts')).runNet }),
  },
  {
    name: 'mounts',
    group: 'observe',
    summary: 'list the storages with the containers that hold them, or all mounts',
    options: [{ name: 'all', summary: 'all mounts of the guest' }],
    examples: [['mounts', 'see who holds a storage']],
    load: async () => ({ run: (await import('./guest.ts')).runMounts }),
  },
  {
    name: 'devices',
    group: 'observe',
    summary: 'list disks, network cards and PCI functions with their drivers',
    examples: [['devices', 'see whether a device has come']],
    load: async () => ({ run: (await import('./guest.ts')).runDevices }),
  },
  {
    name: 'exits',
    group: 'observe',
    summary: 'list the processes that have ended within the last hour, with status and cause',
    arguments: [ONLY],
    examples: [['exits web', 'see why a container ended']],
    load: async () => ({ run: (await import('./processes.ts')).runExits }),
  },
  {
    name: 'capabilities',
    group: 'observe',
    summary: 'list what the agent and its kernel can do, and why not',
    options: [{ name: 'missing', summary: 'only what is not enabled' }],
    examples: [['capabilities --missing', 'see what this guest lacks, with the reasons']],
    load: async () => ({ run: (await import('./agent.ts')).runCapabilities }),
  },
  {
    name: 'metrics',
    group: 'observe',
    summary: "print the agent's metrics as Prometheus reads them",
    examples: [['metrics > agent.prom', 'look at them as a collector does']],
    load: async () => ({ run: (await import('./agent.ts')).runMetrics }),
  },
  {
    name: 'stacks',
    group: 'observe',
    summary:
      'show the threads of the agent and of its programs with their kernel stacks, and what it waits for',
    examples: [['stacks', 'see where an agent hangs']],
    load: async () => ({ run: (await import('./agent.ts')).runStacks }),
  },
  {
    name: 'profile',
    group: 'observe',
    summary: "write a profile of the agent, which Chrome's developer tools open",
    details: [
      'cpu takes --seconds; heap stops the agent for some 100 ms for each 10 MiB of its heap. A snapshot of the heap holds what the agent has in memory, such as environments of containers: only the owner may read FILE.',
    ],
    arguments: [
      { name: 'KIND', summary: 'cpu or heap', choices: ['cpu', 'heap'] },
      {
        name: 'FILE',
        summary: 'where to; agent.cpuprofile or agent.heapsnapshot',
        optional: true,
        completes: 'file',
      },
    ],
    options: [
      { name: 'seconds', value: 'SECONDS', summary: 'how long a CPU profile takes (default 5, at most 60)' },
    ],
    examples: [['profile cpu --seconds 10', 'see what a busy agent does']],
    load: async () => ({ run: (await import('./agent.ts')).runProfile }),
  },
  {
    name: 'top',
    group: 'observe',
    summary: 'show the processes with most memory first, again and again on a terminal',
    arguments: [ONLY],
    options: [{ name: 'seconds', value: 'SECONDS', summary: 'the time between two looks (default 2)' }],
    examples: [['top web', 'watch the processes of a container']],
    load: async () => ({ run: (await import('./processes.ts')).runTop }),
  },
  {
    name: 'console',
    group: 'observe',
    summary: "open the guest's debug console, a shell outside of any container",
    details: [
      'The agent must have agent.debug_console and agent.debug_console_vport. The console ends with its connection: at the detach keys, or when its shell ends.',
    ],
    options: [
      { name: 'port', value: 'PORT', summary: 'the port of the console (default 1026)' },
      {
        name: 'detach-keys',
        value: 'KEYS',
        summary: 'keys that leave the console (default ctrl-p,ctrl-q; empty: none)',
      },
    ],
    examples: [['-a vsock://3 console', 'look around in a guest']],
    load: () => import('./console.ts'),
  },
  {
    name: 'doctor',
    group: 'observe',
    summary: 'collect what a report needs, and say first what is suspicious',
    details: [
      'Asks the agent about itself. A terminal shows what is suspicious, and a file or pipe gets the whole report. Environments, arguments, contents of files and what hooks have written are not in it. What cannot be asked is told with the reason. The exit status is 1 when something is suspicious.',
    ],
    examples: [
      ['doctor', 'see what is suspicious'],
      ['doctor > report.txt', 'what to send with a report'],
    ],
    load: () => import('./doctor/doctor.ts'),
  },
]
