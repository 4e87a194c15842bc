import { ASKS, KEY } from './command-words.mjs'

/** @type {import('./command-words.mjs').CommandOption} */
const TO = { name: 'to', value: 'HOST', summary: 'the id of the host (default: the controller chooses)' }

/**
 * The commands about other hosts.
 * @type {readonly import('./commands.mjs').MachineCommand[]}
 */
export const HOST_COMMANDS = [
  {
    name: 'migrate',
    summary: 'move a machine to another host while it runs',
    details: [
      'Its instance is gone here then, and goes on there. Until the machine is handed over, a signal cancels the move, and the machine goes on here.',
    ],
    options: [
      TO,
      { name: 'dry-run', summary: 'only tell what would not move, and why' },
      { name: 'quiesce', summary: 'have the guest write its file systems down before' },
      { name: 'without-agent', summary: 'ask no agent in the guest to bring its streams to a stop' },
      ...ASKS,
    ],
    arguments: [KEY],
    examples: [['migrate web --to b', 'let web go on at host b']],
  },
  {
    name: 'hosts',
    summary: 'list the hosts that a controller knows',
    options: ASKS,
    arguments: [],
    examples: [['hosts --json', 'with networks and processors']],
  },
  {
    name: 'drain',
    summary: 'move all machines away, and take no more',
    details: ['A machine that cannot move stays, and is named with its reason.'],
    options: [TO, { name: 'end', summary: 'take machines again' }, ...ASKS],
    arguments: [],
    examples: [['drain', 'empty this host before it is serviced']],
  },
]
