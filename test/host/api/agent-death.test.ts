import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { StatusCode } from '../../../src/base/errors.ts'
import { CheckRequest, HealthDefinition } from '../../../src/gen/health.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { rawPeer } from '../../support/rpc/raw-peer.ts'

describe('the death of an agent', () => {
  let started: AgentProcess
  let deaths = 0
  beforeAll(async () => {
    started = await startAgent({ environment: { KATA_AGENT_LOG_LEVEL: 'debug' } })
  })
  afterAll(() => started?.stop())

  async function kill(): Promise<void> {
    process.kill(started.agentPid(), 'SIGKILL')
    deaths += 1
    await started.logged({ msg: 'booted', restarts: `${deaths}` })
  }

  /** Kills the agent after `meanwhile`, of which it sees nothing. */
  async function killAfter<T>(meanwhile: () => T): Promise<Awaited<T>> {
    process.kill(started.agentPid(), 'SIGSTOP')
    const result = await meanwhile()
    await kill()
    return result
  }

  function peer() {
    return rawPeer(connect(started.path))
  }

  it('costs only time for a client that checks every 20 ms over one connection', async () => {
    let isOver = false
    let slowestMs = 0
    let checks = 0
    const checking = async () => {
      for (; !isOver; checks += 1) {
        const begin = performance.now()
        expect(await started.health.check({})).toEqual({ status: 1 })
        slowestMs = Math.max(slowestMs, performance.now() - begin)
        await sleep(20)
      }
    }
    const checked = checking()
    for (let count = 0; count < 3; count += 1) {
      await kill()
      const before = checks
      await expect.poll(() => checks).toBeGreaterThan(before + 1)
    }
    isOver = true
    await checked
    process.stdout.write(`the slowest check of an agent that was killed took ${slowestMs.toFixed(0)} ms\n`)
  })

  it('lets the next agent answer the open requests in their order', async () => {
    const one = peer()
    await killAfter(() => {
      for (const [index, method] of ['Version', 'Check', 'Check'].entries()) {
        one.request(2 * index + 1, 'grpc.Health', method, {
          payload: CheckRequest.encode({ service: '' }).finish(),
        })
      }
      one.request(7, 'grpc.AgentService', 'GetGuestDetails')
    })
    const answers = [await one.response(), await one.response(), await one.response(), await one.response()]
    expect(answers.map(({ streamId, code }) => [streamId, code])).toEqual([
      [1, 0],
      [3, 0],
      [5, 0],
      [7, 0],
    ])
    one.socket.destroy()
  })

  it('counts towards the deadline of a call, which does not begin when that has passed', async () => {
    const one = peer()
    await killAfter(async () => {
      one.request(1, 'grpc.AgentService', 'ListRoutes', { timeoutNano: 1_000_000n })
      one.request(3, 'grpc.AgentService', 'ListRoutes', { timeoutNano: 3_600_000_000_000n })
      await sleep(2)
    })
    const answers = [await one.response(), await one.response()]
    expect(answers.find(({ streamId }) => streamId === 1)).toMatchObject({
      code: StatusCode.DEADLINE_EXCEEDED,
      message: 'timeout',
    })
    expect(answers.find(({ streamId }) => streamId === 3)).toMatchObject({ code: 0 })
    one.socket.destroy()
  })

  it('forgets the requests of a client that leaves before the next agent', async () => {
    const leaving = peer()
    await killAfter(async () => {
      leaving.request(1, 'grpc.AgentService', 'GetMetrics')
      leaving.socket.destroy()
      await leaving.closed
      // The broker handles earlier events before this connection.
      const late = await started.connect()
      late.close()
      await late.closed
    })
    await started.agent.listInterfaces({})
    expect(started.log.filter(({ rpc }) => rpc === 'grpc.AgentService/GetMetrics')).toEqual([])
  })

  it('ends gRPC connections, whose clients dial again', async () => {
    const connection = grpcConnection(started.path)
    const health = clientFor(HealthDefinition, connection)
    expect(await health.check({})).toEqual({ status: 1 })
    await kill()
    await expect.poll(() => health.check({}).catch(() => undefined)).toEqual({ status: 1 })
    connection.close()
  })

  it('differs from an orderly end, which closes its clients and removes its path', async () => {
    const silent = await started.connect()
    process.kill(started.vminitPid, 'SIGTERM')
    await Promise.all([silent.closed, started.closed])
    expect(await started.exited).toBe(0)
    expect(existsSync(started.path)).toBe(false)
  })
})
