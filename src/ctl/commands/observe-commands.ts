import type { Command } from '../command.ts'

/** Commands that show what the guest does. */
export const observeCommands: readonly Command[] = [
  {
    name: 'ps',
    group: 'observe',
    summary: 'list the containers and their processes',
    details: ['Processes that the agent has started itself, and the agent, are shown with --all.'],
    arguments: [
      { name: 'CONTAINER', summary: 'only this container', optional: true, completes: 'container' },
    ],
    options: [{ name: 'all', summary: "the agent's own processes, too" }],
    examples: [
      ['ps', 'list all processes of containers'],
      ['-o json ps web', 'those of one container, for a program'],
    ],
    load: () => import('./ps.ts'),
  },
  {
    name: 'stats',
    group: 'observe',
    summary: 'show what containers use: CPU, memory, processes, disks',
    arguments: [
      {
        name: 'CONTAINER',
        summary: 'only these containers',
        optional: true,
        repeated: true,
        completes: 'container',
      },
    ],
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
    load: () => import('./calls.ts'),
  },
]
