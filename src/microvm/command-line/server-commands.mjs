import { GRACE, HELP } from './command-words.mjs'

/**
 * The commands that serve.
 * @type {readonly import('./commands.mjs').MachineCommand[]}
 */
export const SERVER_COMMANDS = [
  {
    name: 'daemon',
    summary: 'keep machines, in the foreground',
    details: [
      'Serves the API on admin.sock in the state folder until a signal ends it. Its machines go on without it, and the next daemon takes them over.',
    ],
    options: [
      {
        name: 'state',
        value: 'DIR',
        completes: 'folder',
        summary:
          'the state folder (default: /var/lib/microvm for root, else microvm in XDG_STATE_HOME or ~/.local/state)',
      },
      {
        name: 'socket',
        value: 'PATH',
        completes: 'file',
        summary: "the administrator's socket (default: admin.sock in the state folder)",
      },
      {
        name: 'config',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: 'TOML with the tenants',
      },
      {
        name: 'rebuild',
        summary: 'make the registry anew from what the instances have left in their folders',
      },
      { name: 'mock', summary: 'serve the API without machines, for tests of tools' },
      HELP,
    ],
    arguments: [],
    examples: [['daemon --state /srv/machines', 'keep the machines of a folder']],
  },
  {
    name: 'hypervisor',
    summary: 'run the machine of VM_SPEC, as the process of a pod',
    details: [
      'VM_SPEC is a VMSpec of proto/vm.proto, in base64. What it does not say comes from --machine, a file as for ensure: a document, or the `specification`. Serves the API on hypervisor.sock in the state folder, and ends with the guest. A first signal moves the machine to another host, or else presses the power button; a second one kills the machine.',
    ],
    options: [
      {
        name: 'machine',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: 'the machine; its disk `root` is the root block device',
      },
      { name: 'state', value: 'DIR', completes: 'folder', summary: 'the state folder of this machine alone' },
      { name: 'listen', value: 'PATH', completes: 'file', summary: 'a second socket of the API' },
      {
        name: 'peer',
        value: 'ADDRESSES',
        summary:
          "the host's ends of the links, separated by commas (default: 169.254.1.1,fd6d:6963:726f:766d::1)",
      },
      {
        name: 'config',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: 'TOML with [host], as of the daemon; for a VM_SPEC that names a controller',
      },
      {
        name: 'wait',
        value: 'SECONDS',
        number: [1, 86_400],
        summary: 'how long to await the machine of SM_INCOMING_MIGRATION (default: 600)',
      },
      {
        name: 'max-image-size',
        value: 'MIB',
        number: [1, 2 ** 30],
        summary: 'of the initial image of a disk without a size (default: 1048576)',
      },
      { ...GRACE, summary: `${GRACE.summary} for a move, and after its power button (default: 30)` },
      HELP,
    ],
    arguments: [],
    examples: [
      ['hypervisor --machine web.json --state /run/web', 'run the machine of VM_SPEC in the environment'],
    ],
  },
  {
    name: 'controller',
    summary: 'decide which host runs which machine, in the foreground',
    details: [
      'Serves hosts over mutual TLS until a signal ends it. All that it knows is in etcd, so any number of controllers serve the same hosts, and each host names all of them. Its certificate has the common name `controller`.',
    ],
    options: [
      {
        name: 'etcd',
        value: 'ENDPOINT',
        isRepeated: true,
        summary: 'a member of etcd, such as 127.0.0.1:2379 or https://etcd1:2379; once for each',
      },
      { name: 'listen', value: 'ADDRESS', summary: 'where hosts reach it, such as 192.0.2.9:7440' },
      {
        name: 'ca',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: 'who signs the certificates of hosts and controllers',
      },
      { name: 'cert', value: 'FILE', completes: 'file', isRead: true, summary: 'its certificate' },
      {
        name: 'key',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: "the certificate's key, with mode 0600",
      },
      {
        name: 'etcd-ca',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: "who signs etcd's certificates",
      },
      {
        name: 'etcd-cert',
        value: 'FILE',
        completes: 'file',
        isRead: true,
        summary: 'the certificate that etcd is shown',
      },
      { name: 'etcd-key', value: 'FILE', completes: 'file', isRead: true, summary: 'its key' },
      {
        name: 'metrics',
        value: 'ADDRESS',
        summary: 'serve /metrics over HTTP there, such as 127.0.0.1:9464 (default: nowhere)',
      },
      HELP,
    ],
    arguments: [],
    examples: [
      [
        'controller --etcd [::1]:2379 --listen [::]:7440 --ca ca.pem --cert c.pem --key c.key',
        'serve hosts from one etcd',
      ],
    ],
  },
]
