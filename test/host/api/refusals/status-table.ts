import type { StatusCodeName } from '../../../../src/base/errors.ts'
import { SIGKILL, SIGTERM } from '../../../../src/base/signals.ts'
import { createContainerRequest, execProcessRequest } from '../../../support/containers/container-requests.ts'
import type { AgentConnection } from '../../../support/host/agent-process.ts'

type Agent = AgentConnection['agent']
type Answer = Pick<StatusCase, 'code' | 'text'>
type Call = readonly [rpc: string, call: StatusCase['call']]

/** One way in which a call can fail, and the answer that a caller may rely on. */
export interface StatusCase {
  readonly rpc: string
  readonly when: string
  readonly call: (agent: Agent, root: string) => Promise<unknown>
  readonly code: StatusCodeName
  /** The whole text, or a pattern where a runtime's message follows. */
  readonly text: string | RegExp
}

/** The containers and processes of the cases; `test/host/api/agent-errors.test.ts` creates them. */
export const FIXTURES = {
  running: 'running',
  unstarted: 'unstarted',
  paused: 'paused',
  /** Has ended, and its status was collected. */
  collected: 'collected',
  /** Processes of the running container: one sleeps, one has a closed stdin, one has closed its own stdin. */
  sleeping: 'sleeping',
  ended: 'ended',
  deaf: 'deaf',
} as const

/** Copied paths: files of 8 and 9 bytes of which 4 have arrived, and a symbolic link to a folder. */
const COPIED = '/run/kata-containers/shared/containers'
export const COPIES = {
  half: `${COPIED}/half`,
  gap: `${COPIED}/gap`,
  link: `${COPIED}/link`,
} as const

const NOBODY = 'nobody'
const DATA = Buffer.from('x')

/** WriteStdin is left out: all its failures are INTERNAL. */
function processCalls(containerId: string, execId: string): readonly Call[] {
  const key = { containerId, execId }
  return [
    ['SignalProcess', (agent) => agent.signalProcess({ ...key, signal: SIGTERM })],
    ['WaitProcess', (agent) => agent.waitProcess(key)],
    ['ReadStdout', (agent) => agent.readStdout({ ...key, len: 1 })],
    ['ReadStderr', (agent) => agent.readStderr({ ...key, len: 1 })],
    ['CloseStdin', (agent) => agent.closeStdin(key)],
    ['TtyWinResize', (agent) => agent.ttyWinResize({ ...key, row: 1, column: 1 })],
  ]
}

const write = (containerId: string, execId = ''): Call => [
  'WriteStdin',
  (agent) => agent.writeStdin({ containerId, execId, data: DATA }),
]

const add = (containerId: string, args: readonly string[] = ['true']): Call => [
  'ExecProcess',
  (agent) => agent.execProcess(execProcessRequest(containerId, 'new', args)),
]

const create = (id: string, args: readonly string[] = ['true']): Call => [
  'CreateContainer',
  (agent, root) => agent.createContainer(createContainerRequest(id, root, args)),
]

const start = (containerId: string): Call => [
  'StartContainer',
  (agent) => agent.startContainer({ containerId }),
]

/** Calls about a container whose error text is in lower case. */
function wholeCalls(containerId: string): readonly Call[] {
  return [
    ['UpdateContainer', (agent) => agent.updateContainer({ containerId })],
    ['StatsContainer', (agent) => agent.statsContainer({ containerId })],
    ['PauseContainer', (agent) => agent.pauseContainer({ containerId })],
    ['ResumeContainer', (agent) => agent.resumeContainer({ containerId })],
  ]
}

const copy = (path: string, offset: bigint, fileSize = 8n): Call => [
  'CopyFile',
  (agent) =>
    agent.copyFile({
      path,
      fileSize,
      fileMode: 0o100_644,
      dirMode: 0o755,
      offset,
      data: Buffer.from('data'),
    }),
]

function cases(when: string, { code, text }: Answer, ...calls: readonly Call[]): readonly StatusCase[] {
  return calls.map(([rpc, call]) => ({ rpc, when, call, code, text }))
}

const internal = (text: StatusCase['text']): Answer => ({ code: 'INTERNAL', text })
const invalid = (text: StatusCase['text']): Answer => ({ code: 'INVALID_ARGUMENT', text })
const notFound = (text: string): Answer => ({ code: 'NOT_FOUND', text })

const { running, unstarted, paused, collected } = FIXTURES

/** Every status and text that a caller may rely on. None of the calls changes anything. */
export const STATUS_TABLE: readonly StatusCase[] = [
  ...cases(
    'the container does not exist',
    internal('Invalid container id'),
    start(NOBODY),
    ['RemoveContainer', (agent) => agent.removeContainer({ containerId: NOBODY })],
    add(NOBODY),
    ['SignalProcess to all', (agent) => agent.signalProcess({ containerId: NOBODY, signal: SIGKILL })],
    write(NOBODY),
  ),
  ...cases('the container does not exist', invalid('Invalid container id'), ...processCalls(NOBODY, ''), [
    'GetDiagnosticData',
    (agent) => agent.getDiagnosticData({ containerId: NOBODY, logType: 'termination_log' }),
  ]),
  ...cases('the container does not exist', invalid('invalid container id'), ...wholeCalls(NOBODY)),
  ...cases(
    'the process does not exist',
    notFound('Process not found: invalid exec id'),
    ...processCalls(running, NOBODY),
  ),
  ...cases(
    'the process does not exist',
    internal('Process not found: invalid exec id'),
    write(running, NOBODY),
  ),
  ...cases(
    'the status of the first process was collected',
    notFound('Process not found: init process missing'),
    ...processCalls(collected, ''),
    ...processCalls(collected, collected),
    add(collected),
  ),
  ...cases(
    'the status of the first process was collected',
    internal('Process not found: init process missing'),
    write(collected),
  ),
  ...cases(
    'the container was started',
    internal(`container ${running} is running, not created`),
    start(running),
  ),
  ...cases(
    'the container has ended',
    internal(`container ${collected} is stopped, not created`),
    start(collected),
  ),
  ...cases('the container is paused', internal(`container ${paused} is paused, not created`), start(paused)),
  ...cases('the container is paused', internal(`container ${paused} is paused`), add(paused)),
  ...cases('the container is paused', internal(`container ${paused} is paused, not created or running`), [
    'PauseContainer',
    (agent) => agent.pauseContainer({ containerId: paused }),
  ]),
  ...cases('the container is not paused', internal(`container ${unstarted} is created, not paused`), [
    'ResumeContainer',
    (agent) => agent.resumeContainer({ containerId: unstarted }),
  ]),
  ...cases(
    'the id is in use',
    internal(`container id '${running}': already exists (running)`),
    create(running),
  ),
  ...cases('there is a sandbox', internal("sandbox 'pod': already exists (active)"), [
    'CreateSandbox',
    (agent) => agent.createSandbox({ sandboxId: 'second', hostname: 'other' }),
  ]),
  ...[FIXTURES.sleeping, running, ''].flatMap((execId) =>
    cases('the exec id is in use', internal(`exec_id '${execId}' already exists`), [
      'ExecProcess',
      (agent) => agent.execProcess(execProcessRequest(running, execId, ['true'])),
    ]),
  ),
  ...cases(
    'the program is missing',
    internal(/^the file \/bin\/nosuch was not found: /),
    create('unmade', ['/bin/nosuch']),
    add(running, ['/bin/nosuch']),
  ),
  ...cases('there is no process', internal('Unable to parse process from ExecProcessRequest'), [
    'ExecProcess',
    (agent) => agent.execProcess({ containerId: running, execId: 'new' }),
  ]),
  ...cases('stdin was closed', internal('Cannot get writer'), write(running, FIXTURES.ended)),
  ...cases('nobody reads stdin', internal(/EPIPE/), write(running, FIXTURES.deaf)),
  ...cases('there is no terminal', { code: 'UNAVAILABLE', text: 'no tty' }, [
    'TtyWinResize',
    (agent) => agent.ttyWinResize({ containerId: running, row: 24, column: 80 }),
  ]),
  ...cases(
    'the mem-agent is off',
    internal('mem-agent is disabled'),
    ['MemAgentMemcgSet', (agent) => agent.memAgentMemcgSet({ disabled: false })],
    ['MemAgentCompactSet', (agent) => agent.memAgentCompactSet({ disabled: false })],
  ),
  ...cases('there is no such log', invalid("log_type: unknown type 'other', want termination_log"), [
    'GetDiagnosticData',
    (agent) => agent.getDiagnosticData({ containerId: running, logType: 'other' }),
  ]),
  ...cases(
    'no chunk has arrived before',
    {
      code: 'FAILED_PRECONDITION',
      text: `path "${COPIED}/none/x": no chunk has arrived yet, want offset 0 first`,
    },
    copy(`${COPIED}/none/x`, 4n),
  ),
  ...cases(
    'a chunk leaves a gap',
    invalid('offset: 5, want at most the 4 bytes that have arrived'),
    copy(COPIES.gap, 5n, 9n),
  ),
  ...cases(
    'the size has changed',
    invalid('file_size: 9, want 8 as in the first chunk'),
    copy(COPIES.half, 4n, 9n),
  ),
  ...cases(
    'a link is on the way',
    internal(`open ${COPIES.link}/x: ELOOP`),
    copy(`${COPIES.link}/x/y`, 0n, 4n),
  ),
  ...cases('a parent is a link', internal(`open ${COPIES.link}: ENOTDIR`), copy(`${COPIES.link}/x`, 0n, 4n)),
]
