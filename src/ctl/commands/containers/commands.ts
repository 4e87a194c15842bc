import { DETACH_KEYS } from '../../../client/terminal/detach-keys.ts'
import type { Argument, Command, Option } from '../../command.ts'

const DETACH_OPTION: Option = {
  name: 'detach-keys',
  value: 'KEYS',
  summary: `keys that leave the process alone, if it has a terminal (default ${DETACH_KEYS}; empty: none)`,
}
const PROCESS_OPTIONS: readonly Option[] = [
  {
    name: 'interactive',
    short: 'i',
    summary: 'pass stdin on; without it the process reads the end of its stdin at once',
  },
  { name: 'tty', short: 't', summary: 'give the process a terminal of the size of this one' },
  { name: 'env', short: 'e', value: 'NAME=VALUE', repeated: true, summary: 'add to the environment' },
  { name: 'workdir', short: 'w', value: 'FOLDER', summary: 'the working directory (default /)' },
  {
    name: 'user',
    short: 'u',
    value: 'USER[:GROUP]',
    summary: "numbers, or names of the container's /etc/passwd and /etc/group (default 0:0)",
  },
]

const CONTAINER: Argument = { name: 'CONTAINER', summary: "the container's id", completes: 'container' }
const PROCESS: Argument = {
  name: 'PROCESS',
  summary: 'the id of an added process (default: the first process)',
  optional: true,
}

export const containerCommands: readonly Command[] = [
  {
    name: 'exec',
    group: 'containers',
    summary: 'run a program in a container, with the streams of this terminal',
    details: [
      'The exit status is that of the program. Without -t the first SIGINT, SIGTERM or SIGHUP goes to the program and the second ends agent-ctl; with -it, Ctrl-C is a key.',
      'A program with a terminal gets SIGHUP when agent-ctl ends before it, also by SIGKILL, but not when the detach keys leave it.',
    ],
    arguments: [
      CONTAINER,
      { name: 'PROGRAM', summary: 'the program and its arguments', repeated: true, verbatim: true },
    ],
    options: [
      ...PROCESS_OPTIONS,
      DETACH_OPTION,
      { name: 'id', value: 'EXEC_ID', summary: 'the id of the process (default: one of its own)' },
      { name: 'detach', short: 'd', summary: 'print the id of the process and leave it running' },
    ],
    examples: [
      ['exec -it web sh', 'a shell in the container'],
      ["exec web sh -c 'echo out; exit 7'", 'its streams and its exit status are yours'],
    ],
    load: () => import('./exec.ts'),
  },
  {
    name: 'run',
    group: 'containers',
    summary: 'run a program in a new container on a folder of the guest',
    details: [
      'The container is removed when its program has ended, or when it cannot be started; with --detach it stays. A sandbox is created when there is none, and stays. The exit status and the streams are those of exec.',
    ],
    arguments: [
      { name: 'PROGRAM', summary: 'the program and its arguments', repeated: true, verbatim: true },
    ],
    options: [
      { name: 'rootfs', value: 'PATH', summary: "the container's root, a folder of the guest" },
      { name: 'id', value: 'CONTAINER', summary: 'the id of the container (default: one of its own)' },
      ...PROCESS_OPTIONS,
      DETACH_OPTION,
      { name: 'detach', short: 'd', summary: 'print the id of the container and leave it running' },
    ],
    examples: [['run -it --rootfs /run/root sh', 'a shell on a root that the guest has']],
    load: () => import('./run.ts'),
  },
  {
    name: 'attach',
    group: 'containers',
    summary: 'join a process that runs, with the streams of this terminal',
    details: [
      "Output that it reads is not there for others, such as the shim that has started the process. The process lives on when stdin ends and when agent-ctl ends: at the detach keys, if it has a terminal, or at Ctrl-C. When its output ends with it, the exit status is that of the process, which its owner's WaitProcess gets, too.",
    ],
    arguments: [CONTAINER, PROCESS],
    options: [{ name: 'no-stdin', summary: 'pass no stdin on' }, DETACH_OPTION],
    examples: [
      ['attach web', 'type to the first process, and read what it writes from now on'],
      ['attach --no-stdin web job', 'only read'],
    ],
    load: () => import('./attach.ts'),
  },
  {
    name: 'logs',
    group: 'containers',
    summary: 'print what a process has written last',
    details: [
      'The agent keeps output only if agent.output_replay_bytes is set. What others read of it stays for them.',
      'It forgets a process when it has told its exit status: with --follow the end of the output may then be missing, which is told on stderr.',
    ],
    arguments: [CONTAINER, PROCESS],
    options: [{ name: 'follow', short: 'f', summary: 'go on until the process ends' }],
    examples: [
      ['logs web', 'the last output of the container'],
      ['logs -f web job', 'that of an added process, as it comes'],
    ],
    load: () => import('./logs.ts'),
  },
  {
    name: 'rename',
    group: 'containers',
    summary: 'give the sandbox and its containers other ids',
    details: [
      'All ids change at once, or none does. Nothing is renamed in the guest: a new container cannot have the first id of one that is still there.',
    ],
    arguments: [
      {
        name: 'OLD=NEW',
        summary: "a container's id and its new one; OLD=NEW,HOSTNAME where it has a host name of its own",
        optional: true,
        repeated: true,
        completes: 'container',
      },
    ],
    options: [
      { name: 'sandbox', value: 'ID', summary: 'the new id of the sandbox' },
      { name: 'hostname', value: 'NAME', summary: "the sandbox's new host name" },
      { name: 'dns', value: 'LINE', repeated: true, summary: 'a line of the new /etc/resolv.conf' },
      {
        name: 'hosts',
        value: 'FILE',
        completes: 'file',
        summary: 'the new content of what containers have mounted at /etc/hosts',
      },
    ],
    examples: [
      ['rename --sandbox shop --hostname shop web=shop-web', 'the pod of a clone under its own name'],
    ],
    load: () => import('./rename.ts'),
  },
]
