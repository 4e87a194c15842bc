import type { Command } from '../command.ts'
import { SHELLS } from '../help/completion.ts'
import { containerCommands } from './container-commands.ts'
import { observeCommands } from './observe-commands.ts'

/** The request of a call, as words. */
const REQUEST_WORDS =
  'A request is given field by field, as FIELD=VALUE with a path such as process.args[0]=sh, or as JSON: json://{…}, file://PATH, or - for stdin. Fields after JSON are put into it. Bytes are text, hex:…, base64:… or file:PATH.'

/** Every command. The help, the completions, the man page and docs/agent-ctl.md are made of this table. */
export const COMMANDS: readonly Command[] = [
  ...containerCommands,
  ...observeCommands,
  {
    name: 'call',
    group: 'calls',
    summary: 'make one call and print its answer as JSON; the name of the call alone does the same',
    details: [REQUEST_WORDS],
    arguments: [
      { name: 'METHOD', summary: 'the call, such as ListRoutes or grpc.Health/Check', completes: 'method' },
      { name: 'REQUEST', summary: 'fields and JSON of the request', optional: true, repeated: true },
    ],
    examples: [
      ['call GetGuestDetails', 'make a call without fields'],
      ['SignalProcess container_id=web exec_id=web signal=15', 'make a call by its name, with fields'],
      ['call ExecProcess container_id=web process.args[0]=true \'json://{"exec_id": "x"}\'', 'mix both'],
      ['SignalProcess --help', 'show its fields, their types and an example'],
    ],
    load: () => import('./call.ts'),
  },
  {
    name: 'methods',
    group: 'calls',
    summary: 'list every call, or describe one: its fields, their types and choices, and an example',
    arguments: [{ name: 'METHOD', summary: 'the call to describe', optional: true, completes: 'method' }],
    examples: [
      ['methods', 'list all calls'],
      ['methods UpdateRoutes', 'describe one'],
    ],
    load: () => import('./methods.ts'),
  },
  {
    name: 'connect',
    group: 'calls',
    summary: "run calls in the words of the reference's own tool, one after the other",
    details: [
      'Each command is the name of a call and its input: NAME, NAME KEY=VALUE…, NAME json://{…} or NAME file:///PATH. Besides the calls there are echo, sleep TIME, repeat N (which repeats the next command), list and quit. CopyFile takes {"src", "dest"}, SetPolicy {"policy_file"}, and SignalProcess a name or a number.',
    ],
    options: [
      {
        name: 'cmd',
        short: 'c',
        value: 'COMMAND',
        kind: 'list',
        repeated: true,
        summary: 'commands to run',
      },
      {
        name: 'interactive',
        short: 'i',
        value: 'true|false',
        kind: 'optional',
        accepts: /^(true|false)$/,
        summary: 'read commands from stdin, one a line',
      },
      {
        name: 'no-auto-values',
        short: 'n',
        value: 'true|false',
        kind: 'optional',
        accepts: /^(true|false)$/,
        summary: 'generate no ids for requests that lack one',
      },
      {
        name: 'ignore-errors',
        value: 'true|false',
        kind: 'optional',
        accepts: /^(true|false)$/,
        summary: 'go on after a call that fails',
      },
      {
        name: 'hybrid-vsock',
        value: 'true|false',
        kind: 'optional',
        accepts: /^(true|false)$/,
        summary: 'the unix socket is that of a VMM, as with hvsock://PATH:PORT',
      },
      { name: 'hybrid-vsock-port', value: 'PORT', summary: 'the port behind such a socket (default 1024)' },
      {
        name: 'bundle-dir',
        value: 'FOLDER',
        completes: 'folder',
        summary: 'the folder of config.json, whose process ExecProcess adds',
      },
    ],
    examples: [
      [
        'connect --server-address unix:///run/agent.sock -c Check -c \'StartContainer json://{"container_id": "web"}\'',
        'check the health, then start a container',
      ],
      ["connect -c 'repeat 3' 'GetMetrics' 'sleep 1s'", 'read the metrics three times, then wait'],
    ],
    load: () => import('./connect.ts'),
  },
  {
    name: 'policy set',
    group: 'calls',
    summary: 'replace the policy that the agent checks every call with',
    arguments: [{ name: 'FILE', summary: 'the policy, in Rego', completes: 'file' }],
    examples: [['policy set policy.rego', 'the policy in force must allow SetPolicy']],
    load: () => import('./policy-set.ts'),
  },
  {
    name: 'help',
    group: 'tool',
    summary: 'show the help of a command or a call',
    arguments: [
      {
        name: 'COMMAND',
        summary: 'a command or a call',
        optional: true,
        repeated: true,
        completes: 'command',
      },
    ],
    examples: [['help exec', 'show the options of exec']],
    load: () => import('./help.ts'),
  },
  {
    name: 'completion',
    group: 'tool',
    summary: 'print the completion of a shell',
    arguments: [{ name: 'SHELL', summary: SHELLS.join(', '), choices: SHELLS }],
    examples: [['completion bash > /etc/bash_completion.d/agent-ctl', 'install it for bash']],
    load: () => import('./completion.ts'),
  },
  {
    name: 'man',
    group: 'tool',
    summary: 'print the man page',
    examples: [['man | man -l -', 'read it']],
    load: () => import('./man.ts'),
  },
]
