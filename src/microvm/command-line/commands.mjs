import {
  ASKS,
  DEVICE,
  DOCUMENT,
  FILE,
  GRACE,
  HELP,
  JSON_OUTPUT,
  KEY,
  SNAPSHOT,
  SOCKET,
  TIMEOUT,
} from './command-words.mjs'
import { HOST_COMMANDS } from './host-commands.mjs'
import { SAVED_COMMANDS } from './saved-commands.mjs'
import { SERVER_COMMANDS } from './server-commands.mjs'

/** @typedef {import('./command-words.mjs').CommandOption} CommandOption */
/** @typedef {import('./command-words.mjs').CommandArgument} CommandArgument */

/**
 * A command for machines that a daemon keeps. Its `name` is one word.
 * @typedef {object} MachineCommand
 * @property {string} name
 * @property {string} summary begins in lower case, without a period
 * @property {readonly string[]} [details] paragraphs of the help
 * @property {readonly CommandOption[]} options
 * @property {readonly CommandArgument[]} arguments
 * @property {readonly (readonly [words: string, does: string])[]} examples
 */

/** @type {readonly MachineCommand[]} */
export const MACHINE_COMMANDS = [
  ...SERVER_COMMANDS,
  {
    name: 'ensure',
    summary: 'make an instance, or find the equal one',
    details: [
      'FILE is a document of kind VM (docs/machine.md), whose metadata has the name and the labels. Or it has `properties` (key, labels, tenant) and `specification`, as inspect --json prints them. The machine is made paused. An instance of that key with another content is an error, which names the first difference.',
    ],
    options: [
      { name: 'key', value: 'KEY', summary: 'the instance, in place of the name in the file' },
      ...ASKS,
    ],
    arguments: [FILE],
    examples: [
      ['ensure web.json', 'make the instance that the file describes'],
      ['ensure vm.yaml --key web', 'make an instance of a document'],
      ['ensure web.json && ./microvm start web', 'make it and let it run'],
    ],
  },
  {
    name: 'start',
    summary: 'let a machine run, or start a stopped one anew',
    options: ASKS,
    arguments: [KEY],
    examples: [['start web', 'let the machine run']],
  },
  {
    name: 'stop',
    summary: 'press the power button, and kill the machine once its time is over',
    options: [{ ...GRACE, summary: `${GRACE.summary} (default: 30)` }, ...ASKS],
    arguments: [KEY],
    examples: [['stop --grace 5 web', 'give the guest 5 s']],
  },
  {
    name: 'pause',
    summary: 'stop the CPUs of a machine until start',
    options: ASKS,
    arguments: [KEY],
    examples: [['pause web', 'pause the machine']],
  },
  {
    name: 'kill',
    summary: 'end a machine at once',
    options: ASKS,
    arguments: [KEY],
    examples: [['kill web', 'end the machine; its record, log and disks stay']],
  },
  {
    name: 'reset',
    summary: 'press the reset button',
    options: ASKS,
    arguments: [KEY],
    examples: [['reset web', 'boot the guest anew']],
  },
  {
    name: 'rm',
    summary: 'end an instance and forget it; its disks stay',
    details: [
      'With snapshots, each disk stays as it was at its oldest one, and what was written since is lost: merge keeps it.',
    ],
    options: ASKS,
    arguments: [KEY],
    examples: [['rm web', 'remove the instance']],
  },
  {
    name: 'plug',
    summary: 'add a device to a paused or running machine',
    details: [
      'FILE has `device` and, for all but ports and bridges, its `backend`. For an instance that was made of a document it has features with one device: `storage: [{source: data}]`, or `cpu: 1`.',
    ],
    options: ASKS,
    arguments: [KEY, DEVICE, FILE],
    examples: [['plug web data disk.json', 'add the disk `data`']],
  },
  {
    name: 'unplug',
    summary: 'ask the guest to let a device go',
    details: ['A device that stays past the time is leaving, and goes whenever the guest lets it.'],
    options: [{ ...GRACE, summary: `${GRACE.summary} (default: 10)` }, ...ASKS],
    arguments: [KEY, DEVICE],
    examples: [['unplug web data', 'remove the disk `data`']],
  },
  {
    name: 'replace',
    summary: 'provide a device from elsewhere while the guest goes on',
    details: [
      'FILE has the new backend. An instance that was made of a document takes a name of the catalogue.',
    ],
    options: [
      { name: 'source', value: 'NAME', summary: 'in place of FILE: the name of a volume, network or folder' },
      ...ASKS,
    ],
    arguments: [KEY, { name: 'BACKEND', summary: 'the key of the backend' }, { ...FILE, isOptional: true }],
    examples: [
      ['replace web data-file other.json', 'take another file for the disk'],
      ['replace web disk0-backend --source fast', 'take the volume `fast`'],
    ],
  },
  {
    name: 'snapshot',
    summary: 'keep the present content of disks, with the configuration, and with --memory the whole machine',
    details: [
      'All disks are of one moment, as after a power failure; a guest that runs stands still for it. What is written from then on goes to files in the folder of the instance.',
      'With --memory the machine goes on as well, and revert lets it go on from that moment. What is kept holds all that the guest has in memory, keys too.',
    ],
    options: [
      { name: 'disks', value: 'DEVICES', summary: 'only these, separated by commas (default: all)' },
      { name: 'quiesce', summary: 'have the guest write its file systems down before' },
      { name: 'memory', summary: 'keep the memory too, and all disks' },
      {
        name: 'without-agent',
        summary: 'with --memory, ask no agent in the guest to bring its streams to a stop',
      },
      ...ASKS,
    ],
    arguments: [KEY, SNAPSHOT],
    examples: [
      ['snapshot web before-upgrade', 'keep all disks that the guest writes to'],
      ['snapshot --disks data web monday', 'keep the disk `data`'],
      ['snapshot --memory web ready', 'keep all of the machine, which goes on'],
    ],
  },
  {
    name: 'snapshots',
    summary: 'list the snapshots of an instance; --json has the layers of its disks, too',
    options: ASKS,
    arguments: [KEY],
    examples: [['snapshots web', 'the oldest first']],
  },
  {
    name: 'revert',
    summary: 'give a stopped instance the disks and the configuration of a snapshot',
    details: [
      'What was written since the last snapshot is lost. The snapshot stays. One with memory lets the machine go on; others leave it stopped.',
    ],
    options: ASKS,
    arguments: [KEY, SNAPSHOT],
    examples: [['revert web before-upgrade && ./microvm start web', 'go back, and run']],
  },
  {
    name: 'rm-snapshot',
    summary: 'forget a snapshot, and merge the files that no other needs',
    details: ['The present content of the disks stays as it is. A machine may run meanwhile.'],
    options: ASKS,
    arguments: [KEY, SNAPSHOT],
    examples: [['rm-snapshot web monday', 'forget the snapshot']],
  },
  {
    name: 'merge',
    summary: "forget all snapshots, so that the disks' own files have all",
    details: ['Do this before rm, which otherwise leaves each disk as it was at its oldest snapshot.'],
    options: ASKS,
    arguments: [KEY],
    examples: [['merge web && ./microvm rm web', 'remove an instance, and keep what its disks have']],
  },
  ...SAVED_COMMANDS,
  ...HOST_COMMANDS,
  {
    name: 'ps',
    summary: 'list the instances',
    options: ASKS,
    arguments: [],
    examples: [
      ['ps --json | jq -r \'select(.state == "RUNNING").properties.key\'', 'the keys of those that run'],
    ],
  },
  {
    name: 'inspect',
    summary: 'show all of an instance',
    details: [
      'Of an instance that was made of a document, an option shows one machine alone, and without one a summary is shown.',
    ],
    options: [
      { name: 'saved', summary: 'the machine of the next cold boot' },
      { name: 'desired', summary: 'the machine that the running one is to be' },
      { name: 'current', summary: 'the machine that runs' },
      {
        name: 'timeline',
        summary: 'its last suspends, resumes, clones, snapshots and reverts, step by step',
      },
      ...ASKS,
    ],
    arguments: [KEY],
    examples: [['inspect --json web > web.json', 'keep its description; ensure takes it again']],
  },
  {
    name: 'events',
    summary: 'show the changes of instances',
    options: [
      { name: 'follow', short: 'f', summary: 'wait for further changes' },
      {
        name: 'after',
        value: 'NUMBER',
        number: [0, Number.MAX_SAFE_INTEGER],
        summary: 'only changes after this sequence number (default: all that are kept)',
      },
      JSON_OUTPUT,
      SOCKET,
      HELP,
    ],
    arguments: [],
    examples: [['events -f', 'show all changes, also those to come']],
  },
  {
    name: 'calls',
    summary: 'list the calls that have not ended, with their present step',
    options: ASKS,
    arguments: [],
    examples: [['calls', 'see what a command waits for']],
  },
  {
    name: 'metrics',
    summary: "print the daemon's figures in the text form of Prometheus",
    options: [SOCKET, TIMEOUT, HELP],
    arguments: [],
    examples: [
      ['metrics > /var/lib/prometheus/node-exporter/microvm.prom', "for node_exporter's textfile collector"],
    ],
  },
  {
    name: 'console',
    summary: 'connect to the console of a guest',
    details: [
      'Prints the last 64 KiB of the console and all that comes, and types what is typed. Ctrl-P Ctrl-Q leaves it; the guest goes on. Who reads too slowly loses bytes, and sees how many.',
    ],
    options: [SOCKET, HELP],
    arguments: [KEY],
    examples: [['console web', 'log in at the console']],
  },
  {
    name: 'secret',
    summary: 'keep secrets, which specifications name by their UUIDs',
    details: [
      'The value is all bytes of FILE, or of stdin, where nothing is left out: a line feed belongs to it. No command shows it again.',
    ],
    options: [
      { name: 'tenant', value: 'NAME', summary: "whose machines may use it (default: the socket's tenant)" },
      ...ASKS,
    ],
    arguments: [
      { name: 'ACTION', choices: ['set', 'ls', 'rm'], summary: 'set, ls or rm' },
      { name: 'UUID', summary: 'of the secret, for set and rm', isOptional: true },
      {
        name: 'FILE',
        summary: 'has the value, for set (default: -, which reads stdin)',
        completes: 'file',
        isRead: true,
        isOptional: true,
      },
    ],
    examples: [
      ['secret set 0a7c6c1e-5f0e-4e4e-9a55-0f4f8f0c2d11 < key', "keep the secret of a disk's encryption"],
    ],
  },
  {
    name: 'expand',
    summary: 'show the whole machine of a document, without making anything',
    details: [
      'FILE is YAML or JSON of kind VM or VirtualMachineConfig (docs/machine.md). What stands behind a device keeps its name, because no host is asked.',
    ],
    options: [
      {
        name: 'as',
        value: 'FORM',
        choices: ['libvirt'],
        summary: "another form: `libvirt`, which is libvirt's domain XML",
      },
      { name: 'tenant', summary: 'refuse what only the administrator may give: the part `domain`' },
      JSON_OUTPUT,
      HELP,
    ],
    arguments: [DOCUMENT],
    examples: [['expand vm.yaml > machine.yaml', 'keep the whole machine; diff compares it with others']],
  },
  {
    name: 'diff',
    summary: 'show each field in which two machines differ',
    details: [
      'Each file is a document, which is expanded, or what expand has printed. The exit status is 1 when they differ.',
    ],
    options: [JSON_OUTPUT, HELP],
    arguments: [
      { ...DOCUMENT, name: 'BEFORE' },
      { ...DOCUMENT, name: 'AFTER' },
    ],
    examples: [['diff machine.yaml vm.yaml', 'see what an expansion of today does otherwise']],
  },
  {
    name: 'doctor',
    summary: 'check what this host has and lacks for machines',
    details: [
      'Prints a line for each: ok, or missing with the remedy. The exit status is 1 when something needed is missing.',
    ],
    options: [JSON_OUTPUT, SOCKET, HELP],
    arguments: [],
    examples: [['doctor', 'check this host']],
  },
]
