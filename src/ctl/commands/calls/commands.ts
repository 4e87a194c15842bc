import type { Command, Option } from '../../command.ts'

const REQUEST_WORDS =
  'A request is given field by field, as FIELD=VALUE with a path such as process.args[0]=sh, or as JSON: json://{…}, file://PATH, or - for stdin. Fields after JSON are put into it. Bytes are text, hex:…, base64:… or file:PATH.'

/** A switch of kata-agent-ctl, which may have a value. */
const SWITCH: Omit<Option, 'name' | 'summary'> = {
  value: 'true|false',
  kind: 'optional',
  accepts: /^(true|false)$/,
}

export const callCommands: readonly Command[] = [
  {
    name: 'resumed',
    group: 'calls',
    summary: 'tell the guest that it was restored or cloned, and wait until it is ready',
    details: [
      'Gives it random bytes and the time of this machine. Prints the steps, and ends with 1 unless the guest is ready.',
    ],
    arguments: [
      {
        name: 'IDENTITY',
        summary: 'for a clone: fields and JSON of its identity (agent-ctl methods Resumed)',
        optional: true,
        repeated: true,
      },
    ],
    options: [
      {
        name: 'generation',
        value: 'TEXT',
        summary: 'the name of this restore (default: one that no other restore has)',
      },
    ],
    examples: [
      ['resumed', 'repair a guest that was restored'],
      ['resumed hostname=clone7 file://clone7.json', 'make a clone another guest'],
    ],
    load: async () => ({ run: (await import('./resumed.ts')).runResumed }),
  },
  {
    name: 'resume-status',
    group: 'calls',
    summary: 'show the steps of the last repair after a restore, or of one by its number',
    arguments: [{ name: 'NUMBER', summary: 'of the repair', optional: true }],
    examples: [['resume-status', 'see what was repaired, and why not']],
    load: async () => ({ run: (await import('./resumed.ts')).runResumeStatus }),
  },
  {
    name: 'quiesce',
    group: 'calls',
    summary: 'freeze the containers and the disks of the pod, so that it can be saved or copied at rest',
    options: [
      { name: 'for', value: 'TIME', summary: 'when it is thawed without a word (default, and at most: 60s)' },
    ],
    examples: [['quiesce --for 10s', 'freeze the pod for ten seconds at most']],
    load: async () => ({ run: (await import('./quiesce.ts')).runQuiesce }),
  },
  {
    name: 'thaw',
    group: 'calls',
    summary: 'thaw what quiesce has frozen; ends with 1 if it was not frozen until then',
    examples: [['thaw', 'let the pod go on']],
    load: async () => ({ run: (await import('./quiesce.ts')).runThaw }),
  },
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
      ['call ExecProcess container_id=web process.args[0]=/bin/true \'json://{"exec_id": "x"}\'', 'mix both'],
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
      { name: 'cmd', short: 'c', value: 'COMMAND', kind: 'list', repeated: true, summary: 'commands to run' },
      { ...SWITCH, name: 'interactive', short: 'i', summary: 'read commands from stdin, one a line' },
      {
        ...SWITCH,
        name: 'no-auto-values',
        short: 'n',
        summary: 'generate no ids for requests that lack one',
      },
      { ...SWITCH, name: 'ignore-errors', summary: 'go on after a call that fails' },
      {
        ...SWITCH,
        name: 'hybrid-vsock',
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
    name: 'bench',
    group: 'calls',
    summary: 'make one call many times, and tell how long it takes',
    arguments: [
      {
        name: 'METHOD',
        summary: 'the call (default grpc.Health/Check)',
        optional: true,
        completes: 'method',
      },
      { name: 'REQUEST', summary: 'fields and JSON of the request', optional: true, repeated: true },
    ],
    options: [
      { name: 'calls', value: 'NUMBER', summary: 'how many calls (default 1000)' },
      { name: 'parallel', value: 'NUMBER', summary: 'how many at a time (default 1, at most 64)' },
    ],
    examples: [['bench ListRoutes --calls 200', 'median, 99th percentile and rate']],
    load: () => import('./bench.ts'),
  },
  {
    name: 'record',
    group: 'calls',
    summary: 'stand between a caller and the agent, and record their calls',
    details: [
      'A caller such as a shim connects to the address of --listen instead of to the agent. Each line of FILE is a call with its answer, time limit and metadata, in the form that replay reads. Requests hold environments and files: only the owner may read FILE. A signal ends it.',
      'Not recorded: calls over gRPC, which pass, and are told on stderr; messages of more than 4 MiB; what goes over other ports, such as streams on ports of the host and the console.',
    ],
    arguments: [{ name: 'FILE', summary: 'the recording, which is emptied', completes: 'file' }],
    options: [
      { name: 'listen', value: 'ADDRESS', summary: 'unix://PATH or unix://@NAME, where callers connect' },
      { name: 'once', summary: 'end when the last connection has closed' },
    ],
    examples: [['record calls.jsonl --listen unix:///run/recorded.sock', 'record what connects there']],
    load: () => import('./record.ts'),
  },
  {
    name: 'replay',
    group: 'calls',
    summary: 'make the calls of a recording again, in their order, and show which answers differ',
    details: [
      'Calls that overlapped in the recording overlap again, without its pauses. What the caller had made before, such as the root of a container, must be there, or is made by --prepare. A stream that was read in a loop is compared as a whole. Ids, times and sizes are not compared.',
    ],
    arguments: [{ name: 'FILE', summary: 'a recording of record or of --record', completes: 'file' }],
    options: [
      {
        name: 'strict',
        summary:
          'compare the whole of each answer, not only what shims rely on; texts of failures are left out',
      },
      {
        name: 'prepare',
        value: 'PROGRAM',
        completes: 'file',
        summary:
          'run PROGRAM before each CreateContainer, with its request as JSON on stdin, to make its root',
      },
      { name: 'until', value: 'METHOD', summary: 'end before the first call of METHOD', completes: 'method' },
    ],
    examples: [['replay calls.jsonl', 'compare another agent with the recorded one']],
    load: () => import('./replay.ts'),
  },
  {
    name: 'policy set',
    group: 'calls',
    summary: 'replace the policy that the agent checks every call with',
    arguments: [{ name: 'FILE', summary: 'the policy, in Rego', completes: 'file' }],
    examples: [['policy set policy.rego', 'the policy in force must allow SetPolicy']],
    load: async () => ({ run: (await import('./policy.ts')).runSet }),
  },
  {
    name: 'policy check',
    group: 'calls',
    summary: 'check a policy without an agent, by the evaluator that agents have',
    details: [
      'Errors have line and column. Each rule is also asked about an empty request: a function that is not there shows only then, and a rule without a value makes the call fail. The exit status is 1 when there are errors. The evaluator is policy.node, which npm run dist writes beside agent-ctl.cjs and into its archive.',
    ],
    arguments: [{ name: 'FILE', summary: 'the policy, in Rego', completes: 'file' }],
    options: [
      {
        name: 'engine',
        value: 'FOLDER',
        completes: 'folder',
        summary: 'where policy.node is (default: beside agent-ctl, or /usr/lib/microvm-agent)',
      },
    ],
    examples: [
      ['policy check policy.rego', 'before it is set, or written into an image'],
      ['-o json policy check policy.rego', 'file, errors and warnings, for a program'],
    ],
    load: async () => ({ run: (await import('./policy.ts')).runCheck }),
  },
]
