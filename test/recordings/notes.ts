import { createHash } from 'node:crypto'
import { StatusCode } from '../../src/base/errors.ts'
import type { Difference, RecordingNotes } from '../../src/ctl/recording/notes.ts'
import type {
  Json,
  JsonObject,
  RecordedAnswer,
  RecordedCall,
  Recording,
} from '../../src/ctl/recording/recording.ts'

// The knowledge of a replay about the recordings besides their lines.

interface NotedDifference extends Difference {
  readonly recording: string
  readonly lines: readonly number[]
}

const EVERY_COMMAND = 'agent-ctl.every-command'

export const DIFFERENCES: readonly NotedDifference[] = [
  {
    recording: EVERY_COMMAND,
    lines: [8],
    because: 'the reference names no device handlers, and pulls images in the guest',
    instead: (recorded) => details(recorded, HANDLERS),
  },
  {
    recording: EVERY_COMMAND,
    lines: [11, 95],
    because: 'the reference calls IPv4 addresses IPv6, and the other way around',
    instead: (recorded) => ({ ...recorded, response: withFamiliesSwapped(recorded.response) }),
  },
  {
    recording: EVERY_COMMAND,
    lines: [29],
    because: 'the reference cannot add a process to a container with a pid namespace of its own',
    instead: () => answered({}),
  },
  ...[
    // The process prints a line on each stream, prints its input, and exits with 3.
    { line: 32, instead: answered(data('exec-out\n')) },
    { line: 35, instead: answered(data('exec-err\n')) },
    { line: 38, instead: failed('UNAVAILABLE') },
    { line: 41, instead: answered({ len: 4 }) },
    { line: 44, instead: answered(data('got abc\n')) },
    { line: 47, instead: answered({}) },
    { line: 50, instead: answered({ status: 3 }) },
  ].map(({ line, instead }) => ({
    recording: EVERY_COMMAND,
    lines: [line],
    because: 'the process of line 29 does not exist there',
    instead: () => instead,
  })),
  {
    recording: EVERY_COMMAND,
    lines: [128, 137, 140, 143],
    because: 'a request that cannot be right is INVALID_ARGUMENT here; the reference answers INTERNAL',
    instead: () => failed('INVALID_ARGUMENT'),
  },
  {
    recording: 'go-shim.no-shared-fs',
    lines: [7],
    because: 'this agent did not serve CopyFile when it was recorded',
    instead: () => answered({}),
  },
  {
    recording: 'runtime-rs.refused-today',
    lines: [6, 7],
    because: 'this agent refused capabilities without `CAP_` when it was recorded',
    instead: () => answered({}),
  },
]

const HANDLERS = {
  deviceHandlers: ['blk', 'mmioblk', 'nvdimm', 'scsi', 'vfio-pci', 'vfio-pci-gk'],
  storageHandlers: [
    ...['9p', 'blk', 'ephemeral', 'erofs.multi-layer', 'local', 'mmioblk', 'nvdimm', 'overlayfs', 'scsi'],
    ...['virtio-fs', 'watchable-bind'],
  ],
}

/**
 * The texts of streams that differ from the recording, by recording and the line of the stream's first read: reads were
 * left out there, or the text depends on time.
 */
const TEXTS: Readonly<Record<string, Readonly<Record<number, RegExp>>>> = {
  'go-shim.ctr-network': {
    14: new RegExp(
      [
        // A veth has its peer's number after its name.
        'eth0(@if\\d+)?: .* mtu 1400 .*',
        'inet 10\\.99\\.0\\.2/24 .*',
        'inet6 fd99::2/64 .*',
        'net1(@if\\d+)?: .* mtu 1500 .*',
        'inet 10\\.98\\.0\\.2/24 .*',
        'inet 10\\.98\\.0\\.3/32 .*',
        'default via 10\\.99\\.0\\.1 dev eth0 ',
        '10\\.96\\.0\\.0/16 via 169\\.254\\.1\\.1 dev eth0 onlink ',
        '10\\.97\\.0\\.0/16 via 10\\.98\\.0\\.1 dev net1 ',
        '10\\.99\\.0\\.77 dev eth0 lladdr 02:00:00:00:00:77 .* PERMANENT',
        'fd99::77 dev eth0 lladdr 02:00:00:00:00:78 .* PERMANENT',
        'fd99::1 ping statistics ---\n1 packets transmitted, 1 packets received, .*',
        '10\\.98\\.0\\.1 ping statistics ---\n1 packets transmitted, 1 packets received, ',
      ].join('[\\s\\S]*'),
    ),
  },
  'go-shim.exec-tty-pause-metrics': {
    14: /^err\n$/,
    15: /^\/tmp\nbar\nbusybox\n2\n$/,
    22: /\/dev\/pts\/0\r\n[\s\S]*\r\n50 120\r\n$/,
  },
  'go-shim.cri-virtio-mem-swap': {
    24: /^Filename.*\n\/dev\/vd[a-z] +partition\t\d+\t\t0\t\t-2\n$/,
  },
  'go-shim.cri-pod-five-containers': {
    21: /^line 0\n(line \d+\n)*$/,
    40: /^web1\npa\nsearch example\.test\nnameserver 10\.88\.0\.53\noptions ndots:2\n50331648\n.* on \/ type [\s\S]* on \/dev\/shm type tmpfs \(.*size=65536k/,
    // The input was not recorded, so this many zeros are written (lines 68, 70 and 71).
    67: new RegExp(
      `^${createHash('md5')
        .update(Buffer.alloc(32_768 + 32_768 + 19_264))
        .digest('hex')} {2}-\n$`,
    ),
    98: /^((0123456789){7}\n){60000}END\n$/,
  },
  // Its end comes from another pod (no-shared-folder.ts).
  'go-shim.no-shared-fs': {
    1021: /^line 0\n(line \d+\n)*$/,
  },
  'runtime-rs.exec-tty-pause-metrics': {
    8: /^(tick\n)+$/,
    14: /^\/\nbar\nbusybox\n\d+\n$/,
    46: /\/dev\/pts\/0\r\n[\s\S]*\r\n50 120\r\n$/,
  },
}

/** Left-out writes to stdin that the later lines depend on. */
const LEFT_OUT_WRITES = [
  // The recording has the echo; line 27 writes to the same process.
  { recording: 'go-shim.exec-tty-pause-metrics', cut: 32, like: 27, data: 'stty size; exit 9\n' },
]

export function notesOf({ name, lines }: Recording): RecordingNotes {
  const isAgentCtl = name.startsWith('agent-ctl.')
  return {
    answeredBy: isAgentCtl ? 'the reference' : 'this agent',
    readsInLoops: !isAgentCtl,
    texts: TEXTS[name] ?? {},
    leftOut: (cut) => {
      const writes = LEFT_OUT_WRITES.filter((write) => write.recording === name && write.cut === cut.line)
      return writes.flatMap(({ like, data: text }) => {
        const model = lines.find((line) => line.line === like)
        return model?.kind === 'call' ? [{ ...model, ...written(model, text) }] : []
      })
    },
    differenceAt: ({ line }) =>
      DIFFERENCES.find((difference) => difference.recording === name && difference.lines.includes(line)),
  }
}

function written({ request, answer }: RecordedCall, text: string): Pick<RecordedCall, 'request' | 'answer'> {
  return {
    request: { ...request, ...data(text) },
    answer: answer === undefined ? undefined : { ...answer, response: { len: text.length } },
  }
}

function data(text: string): JsonObject {
  return { data: { base64: Buffer.from(text).toString('base64') } }
}

function answered(response: JsonObject): Omit<RecordedAnswer, 'atMs'> {
  return { code: StatusCode.OK, message: '', response }
}

function failed(code: keyof typeof StatusCode): Omit<RecordedAnswer, 'atMs'> {
  return { code: StatusCode[code], message: '', response: undefined }
}

function details(recorded: RecordedAnswer, changed: JsonObject): RecordedAnswer {
  const agentDetails = recorded.response?.agentDetails
  const known = typeof agentDetails === 'object' && !Array.isArray(agentDetails) ? agentDetails : {}
  return { ...recorded, response: { ...recorded.response, agentDetails: { ...known, ...changed } } }
}

function withFamiliesSwapped(response: JsonObject | undefined): JsonObject {
  const swapped = JSON.stringify(response, (key, value: Json) =>
    key === 'family' ? 1 - Number(value) : value,
  )
  return JSON.parse(swapped)
}
