import type { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { AgentError, StatusCode } from '../../src/base/errors.ts'
import { parseLines, type RecordedCall } from '../../src/ctl/recording/recording.ts'
import { ReadStreamResponse, WaitProcessResponse } from '../../src/gen/agent.ts'
import { FrameReader } from '../../src/rpc/ttrpc/frame.ts'
import {
  decodeRequest,
  encodeErrorFrame,
  encodeRequestFrame,
  encodeResponseFrame,
} from '../../src/rpc/ttrpc/messages.ts'
import { isPending, settle } from '../support/pending.ts'
import { duplexPair } from '../support/rpc/duplex-pair.ts'
import { replay } from './replay.ts'

type Answer = () => Uint8Array | Promise<Uint8Array>

const EMPTY: Answer = () => new Uint8Array()
const OPEN = { ms: 0, conn: 1, event: 'open' }

function call(method: string, ms: number, answeredMs: number | undefined, fields: object = {}) {
  const answer = answeredMs === undefined ? {} : { answered_ms: answeredMs, code: 0, response: {} }
  const request = { conn: 1, stream: 2 * ms + 1, request: {}, request_bytes: '' }
  return { ms, method: `grpc.AgentService/${method}`, ...request, ...answer, ...fields }
}

function read(ms: number, answeredMs: number, text: string) {
  const request = { containerId: 'c', execId: '', len: 10 }
  const response = { data: { base64: Buffer.from(text).toString('base64') } }
  return call('ReadStdout', ms, answeredMs, { request, response })
}

/** An agent with these answers, else UNIMPLEMENTED; `log` records its calls. */
function agentWith(answers: Readonly<Record<string, Answer>>) {
  const log: string[] = []
  const frames: Buffer[] = []
  const serve = (socket: Duplex) => {
    const reader = new FrameReader({
      onFrame: ({ streamId }, payload) => void answer(streamId, payload),
      onOversizedFrame: () => {},
    })
    const answer = async (streamId: number, payload: Uint8Array) => {
      const { method } = decodeRequest(payload)
      log.push(`${streamId} ${method}`)
      try {
        const { [method]: make = () => Promise.reject(new AgentError('UNIMPLEMENTED', 'not yet')) } = answers
        socket.write(encodeResponseFrame(streamId, await make()))
      } catch (error) {
        const { code, message } = error as AgentError
        socket.write(encodeErrorFrame(streamId, { code: StatusCode[code], message }))
      }
    }
    socket.on('data', (chunk: Buffer) => {
      frames.push(chunk)
      reader.push(chunk)
    })
  }
  const dial = async () => {
    const [here, there] = duplexPair()
    log.push('dialled')
    here.on('close', () => log.push('closed'))
    serve(there)
    return here
  }
  const prepare = async ({ method }: RecordedCall) => {
    if (method === 'CreateContainer') log.push('prepared')
  }
  const play = (lines: readonly object[], name = 'go-shim.test', until?: string) => {
    const text = lines.map((line) => JSON.stringify(line)).join('\n')
    return replay({ name, lines: parseLines(name, text) }, { dial, prepare }, until)
  }
  return { log, frames, play }
}

describe('a replay', () => {
  it('sends the recorded bytes with the time limit, the metadata and the stream', async () => {
    const { frames, play } = agentWith({ StartContainer: EMPTY })
    const payload = Buffer.from('0a0172', 'hex')
    const metadata = { 'containerd-namespace-ttrpc': 'default' }
    const fields = { request_bytes: payload.toString('base64'), timeout_ms: 59_999.953069, metadata }
    await play([OPEN, call('StartContainer', 6, 7, fields)])
    const sent = {
      service: 'grpc.AgentService',
      method: 'StartContainer',
      payload,
      timeoutNano: 59_999_953_069n,
    }
    expect(Buffer.concat(frames)).toEqual(encodeRequestFrame(13, sent, metadata))
  })

  it('opens and closes connections where the caller did, and lets the host prepare each call', async () => {
    const { log, play } = agentWith({ CreateContainer: EMPTY, ListRoutes: EMPTY })
    const second = { conn: 2, stream: 1 }
    const lines = [OPEN, { ms: 1, conn: 2, event: 'open' }, call('CreateContainer', 2, 3)]
    const count = await play([...lines, { ms: 4, conn: 1, event: 'close' }, call('ListRoutes', 5, 6, second)])
    await settle()
    const calls = ['5 CreateContainer', '1 ListRoutes']
    expect(log.filter((one) => one !== 'closed')).toEqual(['dialled', 'dialled', 'prepared', ...calls])
    expect(log.filter((one) => one === 'closed')).toHaveLength(2)
    expect(count).toBe(2)
  })

  it('waits before a call for those that had been answered before it, and for no others', async () => {
    const held = Promise.withResolvers<Uint8Array>()
    const { log, play } = agentWith({
      GetOOMEvent: () => held.promise,
      StartContainer: () => held.promise,
      PauseContainer: EMPTY,
    })
    const done = play([
      OPEN,
      call('GetOOMEvent', 1, undefined),
      call('StartContainer', 2, 8),
      call('PauseContainer', 3, 4),
      call('PauseContainer', 9, 10),
    ])
    await settle()
    expect(log).toEqual(['dialled', '3 GetOOMEvent', '5 StartContainer', '7 PauseContainer'])
    expect(await isPending(done)).toBe(true)
    held.resolve(new Uint8Array())
    expect(await done).toBe(4)
  })

  it.each<[string, Answer, RegExp]>([
    [
      'another failure',
      () => Promise.reject(new AgentError('NOT_FOUND', 'gone')),
      /failed with 5: gone, want answered \{"status":7\}$/,
    ],
    [
      'another response',
      () => WaitProcessResponse.encode({ status: 9 }).finish(),
      /answered \{"status":9\}, want answered \{"status":7\}$/,
    ],
  ])('fails at %s, naming the line', async (_name, WaitProcess, error) => {
    const { play } = agentWith({ WaitProcess })
    const lines = [OPEN, call('WaitProcess', 1, 2, { response: { status: 7 } })]
    await expect(play(lines)).rejects.toThrow(error)
    await expect(play(lines)).rejects.toThrow(/^go-shim\.test, line 2, WaitProcess: /)
  })

  it('leaves out the given method, what follows it, and the answers that came later', async () => {
    const { log, play } = agentWith({ StartContainer: EMPTY, GetOOMEvent: () => new Promise(() => {}) })
    const oom = call('GetOOMEvent', 1, 5, { code: 13, response: undefined })
    const lines = [OPEN, oom, call('StartContainer', 2, 3), call('DestroySandbox', 4, 5)]
    expect(await play(lines, 'go-shim.test', 'DestroySandbox')).toBe(2)
    expect(log).not.toContain('9 DestroySandbox')
  })

  describe('of a stream', () => {
    const texts = (...list: string[]): Answer => {
      return () => ReadStreamResponse.encode({ data: Buffer.from(list.shift() ?? '') }).finish()
    }
    const lines = [OPEN, read(1, 2, 'ab'), read(3, 4, 'c'), read(5, 6, '')]

    it('reads to its end, however the text is divided', async () => {
      const { log, play } = agentWith({ ReadStdout: texts('a', 'b', 'c') })
      await play(lines)
      expect(log).toEqual(['dialled', '3 ReadStdout', '5 ReadStdout', '7 ReadStdout', '9 ReadStdout'])
    })

    it('waits before a call for the text that had been read before it', async () => {
      const held = Promise.withResolvers<Uint8Array>()
      const answers = [texts('a'), () => held.promise, texts('c'), texts('')]
      const ReadStdout: Answer = () => (answers.shift() ?? EMPTY)()
      const { log, play } = agentWith({ ReadStdout, PauseContainer: EMPTY })
      const done = play([
        OPEN,
        read(1, 2, 'ab'),
        call('PauseContainer', 3, 4),
        read(5, 6, 'c'),
        read(7, 8, ''),
      ])
      await settle()
      expect(log).toEqual(['dialled', '3 ReadStdout', '5 ReadStdout'])
      held.resolve(await texts('b')())
      await done
      expect(log.filter((one) => one.endsWith('PauseContainer'))).toHaveLength(1)
    })

    it.each([
      ['is another one', texts('abd'), /line 2, ReadStdout: brought "abd", want "abc"/],
      ['ends early', texts('a'), /line 2, ReadStdout: ended after "a", want "abc"/],
      ['fails', () => Promise.reject(new AgentError('INTERNAL', 'no')), /code 13: no, after ""/],
    ] as const)('fails when the text %s', async (_name, ReadStdout, error) => {
      await expect(agentWith({ ReadStdout }).play(lines)).rejects.toThrow(error)
    })

    it('refuses a recording whose text was left out in part and is not in the notes', async () => {
      const cut = [OPEN, read(1, 2, 'ab'), { cut: 2 }, read(5, 6, '')]
      await expect(agentWith({}).play(cut)).rejects.toThrow('line 2: the text is not whole')
    })

    it('reads once at each read of agent-ctl, which reads only on request', async () => {
      const { log, play } = agentWith({ ReadStdout: texts('ab', 'c', '') })
      await play(lines, 'agent-ctl.test')
      expect(log).toHaveLength(4)
    })
  })
})
