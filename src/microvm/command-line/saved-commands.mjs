import { ASKS, KEY } from './command-words.mjs'

/** @type {import('./command-words.mjs').CommandOption} */
const REPLACE = {
  name: 'replace',
  value: 'KEY=FILE',
  isRepeated: true,
  summary: 'provide the backend KEY by that in FILE, as replace has it; may be given again for others',
}

const FOLDER = /** @type {const} */ ({ name: 'folder', value: 'DIR', completes: 'folder' })

/**
 * The commands for machines as files.
 * @type {readonly import('./commands.mjs').MachineCommand[]}
 */
export const SAVED_COMMANDS = [
  {
    name: 'suspend',
    summary: 'save a machine with its memory, and end it',
    details: [
      'Its instance is gone then; resume makes it again, and it goes on. What is saved holds all that the guest had in memory, keys too. Its disks stay where they are, and must not be written.',
    ],
    options: [
      { ...FOLDER, summary: 'a new folder for it, for the administrator (default: in the store)' },
      { name: 'quiesce', summary: 'have the guest write its file systems down before' },
      { name: 'without-agent', summary: 'ask no agent in the guest to bring its streams to a stop' },
      ...ASKS,
    ],
    arguments: [KEY, { name: 'NAME', summary: 'of what is saved (default: KEY)', isOptional: true }],
    examples: [['suspend web && ./microvm resume web', 'save it, and let it go on']],
  },
  {
    name: 'resume',
    summary: 'let a saved machine go on, once',
    options: [
      { ...FOLDER, summary: 'where it is, for the administrator (default: in the store)' },
      REPLACE,
      ...ASKS,
    ],
    arguments: [
      { name: 'NAME', summary: 'what suspend has called it' },
      { ...KEY, summary: 'of the instance (default: NAME)', isOptional: true },
    ],
    examples: [
      ['resume web', 'let it go on'],
      [
        'resume web --folder /copied/web --replace root-file=disk.json',
        'let it go on with a copy of its disk',
      ],
    ],
  },
  {
    name: 'clone',
    summary: 'make instances of a saved machine, which stays, or of one that goes on',
    details: [
      'Each clone has disks, addresses, names and random numbers of its own. What programs of the guest have in memory, keys too, all of them have.',
    ],
    options: [
      { name: 'count', value: 'NUMBER', summary: 'how many, as KEY-1, KEY-2 and so on (default: 1)' },
      {
        name: 'hostname',
        value: 'NAME',
        summary: "the guest's; of several clones, with their numbers (default: KEY)",
      },
      { name: 'running', summary: 'SAVED is the key of an instance, which goes on' },
      {
        name: 'without-agent',
        summary: 'also of a guest without one: its clones share random numbers and addresses',
      },
      REPLACE,
      ...ASKS,
    ],
    arguments: [
      { name: 'SAVED', summary: 'the name of the saved machine' },
      { name: 'KEY', summary: 'the key of the new instance' },
    ],
    examples: [
      ['clone --count 3 ready worker', 'make worker-1, worker-2 and worker-3'],
      ['clone --running web worker', 'make worker of web, which goes on'],
    ],
  },
  {
    name: 'saved',
    summary: 'list the machines that are saved',
    options: ASKS,
    arguments: [],
    examples: [['saved --json', 'with sizes and ids']],
  },
  {
    name: 'rm-saved',
    summary: 'remove a saved machine',
    options: ASKS,
    arguments: [{ name: 'NAME', summary: 'what suspend has called it' }],
    examples: [['rm-saved web', 'remove its files']],
  },
  {
    name: 'templates',
    summary: 'list the machines of which `run --warm` takes clones',
    details: [
      'The daemon makes one at the first `run --warm` of such a machine, and keeps it until an input changes, or others need its place.',
    ],
    options: ASKS,
    arguments: [],
    examples: [['templates --json', 'with what each was made of']],
  },
  {
    name: 'rm-template',
    summary: 'remove a template; its clones go on',
    options: ASKS,
    arguments: [{ name: 'NAME', summary: 'as templates shows it' }],
    examples: [['rm-template template-3f0c621d5a7e', 'remove its files']],
  },
]
