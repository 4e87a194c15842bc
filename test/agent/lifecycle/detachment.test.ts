import { describe, expect, it } from 'vitest'
import type { OpenCallView, PortStreams } from '../../../src/agent/lifecycle/detachment.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { ResumedRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { restoredGuest } from '../../support/agent/restored-guest.ts'
import { settle } from '../../support/pending.ts'

const TOTAL = {
  ...{ containerId: 'c', execId: '', stream: 'stdout', port: 5, name: new Uint8Array(), total: 7n },
  ...{ acknowledged: undefined, state: 'detached' },
}

function openCall(given: Partial<OpenCallView> & { readonly rpc: string }): OpenCallView {
  return { ids: {}, changes: false, hasKey: false, waits: false, interrupt: undefined, ...given }
}

async function guestWith(calls: readonly OpenCallView[], options: Parameters<typeof restoredGuest>[0] = {}) {
  const done: string[] = []
  const streams: PortStreams = {
    detach: async () => {
      done.push('detach')
      return [TOTAL]
    },
    totals: () => [TOTAL],
    attach: async (moved) => void done.push(`attach ${moved.map(({ newPort }) => newPort)}`),
    dialAgain: async () => void done.push('dial again'),
  }
  const parts = { ...options.parts, streams, calls: { list: () => calls } }
  return { ...(await restoredGuest({ ...options, parts })), done }
}

const EXEC = { rpc: 'grpc.AgentService/ExecProcess', ids: { containerId: 'c', execId: 'e' }, changes: true }
const WAIT = { rpc: 'grpc.AgentService/WaitProcess', waits: true }
const DETACHED = { code: 'UNAVAILABLE', message: 'Detach: the streams and their callers wait for Attach' }

describe('Detach', () => {
  it('is refused while a call changes something, and names it', async () => {
    const { lifecycle, done } = await guestWith([openCall(WAIT), openCall(EXEC)])
    const refused = { code: 'FAILED_PRECONDITION', message: 'ExecProcess of c/e: is under way' }
    await expect(lifecycle.detach({ timeoutMs: 0 })).rejects.toMatchObject(refused)
    expect(done).toEqual([])
    expect(() => lifecycle.admit(openCall(WAIT))).not.toThrow()
  })

  it('lets a call with a key go on, and tells the totals', async () => {
    const keyed = openCall({ ...EXEC, hasKey: true })
    const own = openCall({ rpc: 'microvm.agent.v1.Lifecycle/Detach', changes: true })
    const { lifecycle } = await guestWith([keyed, own])
    expect(await lifecycle.detach({ timeoutMs: 0 })).toEqual({ streams: [TOTAL] })
  })

  it('ends waits and reads, and no others', async () => {
    const ended: string[] = []
    const interrupt = ({ message }: Error) => void ended.push(message)
    const look = openCall({ rpc: 'grpc.AgentService/StatsContainer', interrupt: () => ended.push('stats') })
    const { lifecycle } = await guestWith([openCall({ ...WAIT, interrupt }), look])
    await lifecycle.detach({ timeoutMs: 0 })
    expect(ended).toEqual([DETACHED.message])
  })

  it('lets only calls begin that take and change nothing, or can be repeated, until Attach', async () => {
    const { lifecycle, done } = await guestWith([])
    await lifecycle.detach({ timeoutMs: 0 })
    const refusal = (call: OpenCallView): AgentError | undefined => {
      try {
        lifecycle.admit(call)
        return undefined
      } catch (error) {
        return error as AgentError
      }
    }
    for (const call of [WAIT, EXEC]) expect(refusal(openCall(call))).toMatchObject(DETACHED)
    expect(refusal(openCall({ ...EXEC, hasKey: true }))).toBeUndefined()
    expect(refusal(openCall({ rpc: 'grpc.Health/Check' }))).toBeUndefined()
    const own = openCall({ rpc: 'microvm.agent.v1.Lifecycle/GetResume', waits: true })
    expect(refusal(own)).toBeUndefined()
    await lifecycle.attach({ streams: [{ oldPort: 5, newPort: 6 }] })
    expect(refusal(openCall(EXEC))).toBeUndefined()
    expect(done).toEqual(['detach', 'attach 6'])
  })

  it('ends by itself, after the time that the caller has asked for', async () => {
    for (const [timeoutMs, bound] of [
      [0, 60_000],
      [5, 5],
    ] as const) {
      const { lifecycle, os, done } = await guestWith([])
      await lifecycle.detach({ timeoutMs })
      os.clock.advance(bound - 1)
      expect(done).toEqual(['detach'])
      os.clock.advance(1)
      await settle()
      expect(done).toEqual(['detach', 'attach '])
      expect(() => lifecycle.admit(openCall(EXEC))).not.toThrow()
    }
  })

  it('stands when Attach names a stream that there is not', async () => {
    const attach = async () => {
      throw new AgentError('NOT_FOUND', 'streams: no stream has the port 9')
    }
    const streams = { detach: async () => [], totals: () => [], attach, dialAgain: async () => {} }
    const { lifecycle } = await restoredGuest({ parts: { streams } })
    await lifecycle.detach({ timeoutMs: 0 })
    const moved = { streams: [{ oldPort: 9, newPort: 10 }] }
    await expect(lifecycle.attach(moved)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(() => lifecycle.admit(openCall(EXEC))).toThrow(DETACHED.message)
  })

  it('refuses a longer time', async () => {
    const { lifecycle } = await guestWith([])
    await expect(lifecycle.detach({ timeoutMs: 600_001 })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  it('leaves the streams attached where one cannot be detached', async () => {
    const done: string[] = []
    const detach = async () => {
      throw new Error('stuck')
    }
    const attach = async () => void done.push('attach')
    const streams = { detach, totals: () => [], attach, dialAgain: async () => {} }
    const { lifecycle } = await restoredGuest({ parts: { streams } })
    await expect(lifecycle.detach({ timeoutMs: 0 })).rejects.toThrow('stuck')
    expect(() => lifecycle.admit(openCall(EXEC))).not.toThrow()
    expect(done).toEqual(['attach'])
  })

  it('ends with a new device, and not when the old one has gone or the guest was restored', async () => {
    const { lifecycle, os, done } = await guestWith([])
    await lifecycle.detach({ timeoutMs: 0 })
    const device = '@/devices/virtio3\0SUBSYSTEM=virtio\0MODALIAS=virtio:d00000013v00001AF4\0'
    os.uevents.send(`remove${device}`)
    os.kernelLog.say('random: crng reseeded due to virtual machine fork')
    await settle()
    await lifecycle.resumed(ResumedRequest.fromPartial({ generation: 'a' }), { ageMs: () => 0 })
    await settle()
    expect(() => lifecycle.admit(openCall(EXEC))).toThrow(DETACHED.message)
    os.uevents.send(`bind${device}`)
    await settle()
    expect(() => lifecycle.admit(openCall(EXEC))).not.toThrow()
    expect(done).toEqual(['detach', 'attach '])
  })

  it('ends with the sandbox', async () => {
    const { lifecycle, os, done } = await guestWith([])
    await lifecycle.detach({ timeoutMs: 0 })
    expect(() =>
      lifecycle.admit(openCall({ rpc: 'grpc.AgentService/DestroySandbox', changes: true })),
    ).not.toThrow()
    await settle()
    expect(done).toEqual(['detach', 'attach '])
    expect(os.clock.sleeping).toBe(0)
  })

  it('is over where the next agent cannot stop the streams', async () => {
    const first = await guestWith([])
    await first.lifecycle.detach({ timeoutMs: 10_000 })
    const done: string[] = []
    const detach = async () => {
      throw new Error('stuck')
    }
    const attach = async () => void done.push('attach')
    const streams = { detach, totals: () => [], attach, dialAgain: async () => {} }
    const { os, state } = first
    const { lifecycle } = await restoredGuest({ os, state, isFirst: false, parts: { streams } })
    expect(() => lifecycle.admit(openCall(EXEC))).not.toThrow()
    expect(done).toEqual(['attach'])
  })

  it('stands when the agent dies, for the rest of its time', async () => {
    const first = await guestWith([])
    await first.lifecycle.detach({ timeoutMs: 10_000 })
    first.os.clock.advance(4000)
    const { os, state } = first
    const { lifecycle, done } = await guestWith([], { os, state, isFirst: false })
    expect(() => lifecycle.admit(openCall(EXEC))).toThrow(DETACHED.message)
    os.clock.advance(6000)
    await settle()
    expect(() => lifecycle.admit(openCall(EXEC))).not.toThrow()
    expect(done).toEqual(['detach', 'attach '])
  })
})
