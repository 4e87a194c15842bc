import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, statSync } from 'node:fs'
import { connect, type NetConnectOpts } from 'node:net'
import { join } from 'node:path'
import { fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Client, credentials } from '@grpc/grpc-js'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import packageJson from '../../../package.json' with { type: 'json' }
import { buildAgent } from '../../../src/build/agent.ts'
import {
  ServerReflectionRequest,
  ServerReflectionResponse,
} from '../../../src/gen/grpc/reflection/v1/reflection.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { agentBelow, agentCommand } from '../../support/host/agent-process.ts'
import { readLog } from '../../support/log-lines.ts'
import { endChild } from '../../support/processes.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { run } from '../../support/vminit/supervised.ts'

describe('the built agent', () => {
  let built: string
  let folder: string
  let path: string
  const started: ChildProcess[] = []

  beforeAll(async () => {
    built = await buildAgent()
  })

  beforeEach(() => {
    folder = temporaryFolder()
    path = join(folder, 'agent.sock')
  })

  afterEach(async () => {
    for (const vminit of started.splice(0)) await kill(vminit)
  })

  async function kill(vminit: ChildProcess): Promise<void> {
    if (vminit.exitCode !== null || vminit.signalCode !== null) return
    vminit.kill('SIGSTOP')
    process.kill(agentBelow(vminit.pid ?? 0), 'SIGKILL')
    await endChild(vminit, 'SIGKILL')
  }

  function spawnAgent(address: string): ChildProcess {
    const [program, ...words] = agentCommand(built, ['--server-addr', address])
    const agent = spawn(program, words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    })
    started.push(agent)
    return agent
  }

  async function start(address = `unix://${path}`): Promise<{ agent: ChildProcess; port: number }> {
    const agent = spawnAgent(address)
    const { port } = await readLog(agent).logged({ msg: 'listening' })
    return { agent, port: Number(port) }
  }

  async function check(address: NetConnectOpts): Promise<number> {
    const client = ttrpcClient(connect(address))
    try {
      return (await clientFor(HealthDefinition, client).check({})).status
    } finally {
      client.close()
    }
  }

  it('listens on a unix socket that only its owner may use, and removes it when it stops', async () => {
    const { agent } = await start()
    expect(await check({ path })).toBe(1)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    await endChild(agent, 'SIGTERM')
    expect(existsSync(path)).toBe(false)
  })

  it('replaces a socket without a listener', async () => {
    await kill((await start()).agent)
    expect(existsSync(path)).toBe(true)
    await start()
    expect(await check({ path })).toBe(1)
  })

  it('leaves a socket with a listener alone', async () => {
    await start()
    const second = spawnAgent(`unix://${path}`)
    let stderr = ''
    second.stderr?.on('data', (chunk) => {
      stderr += chunk
    })
    await expect.poll(() => stderr).toContain(`listen ${path}: EADDRINUSE`)
    await endChild(second, 'SIGTERM')
    expect(await check({ path })).toBe(1)
  })

  it('listens on an abstract socket and on TCP', async () => {
    const name = `agent-test-${process.pid}`
    await start(`unix://@${name}`)
    expect(await check({ path: `\0${name}` })).toBe(1)
    const { port } = await start('tcp://127.0.0.1:0')
    expect(await check({ port, host: '127.0.0.1' })).toBe(1)
  })

  it('refuses an address that it does not understand', async () => {
    const agent = spawnAgent('http://localhost')
    let stderr = ''
    agent.stderr?.on('data', (chunk) => {
      stderr += chunk
    })
    expect(await once(agent, 'close')).toEqual([2, null])
    expect(stderr).toContain('server address "http://localhost": unknown form, want vsock://')
  })

  it('says what to do when vminit has not started it', async () => {
    const outcome = await run([
      join(built, 'node'),
      join(built, 'agent.cjs'),
      '--server-addr',
      `unix://${path}`,
    ])
    const stderr = 'agent: not started by vminit, want `vminit -- agent …`\n'
    expect(outcome).toEqual({ status: 2, stdout: '', stderr })
    expect(existsSync(path)).toBe(false)
  })

  it('returns its versions in both framings', async () => {
    await start()
    for (const connection of [ttrpcClient(connect({ path })), grpcConnection(path)]) {
      expect(await clientFor(IntrospectionDefinition, connection).getVersion({})).toEqual({
        agentVersion: packageJson.version,
        apiVersion: '0.0.1',
        nodeVersion: process.version,
      })
      connection.close()
    }
  })

  it('lists its services to a gRPC client by reflection', async () => {
    await start()
    const client = new Client(`unix:${path}`, credentials.createInsecure())
    const call = client.makeBidiStreamRequest(
      '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
      (request: ServerReflectionRequest) => Buffer.from(ServerReflectionRequest.encode(request).finish()),
      (bytes) => ServerReflectionResponse.decode(bytes),
    )
    const ask = async (question: Partial<ServerReflectionRequest>): Promise<ServerReflectionResponse> => {
      call.write(ServerReflectionRequest.fromPartial(question))
      return (await once(call, 'data'))[0]
    }
    const list = await ask({ listServices: '*' })
    const names = list.listServicesResponse?.service.map(({ name }) => name)
    expect(names).toEqual(
      expect.arrayContaining([
        'grpc.AgentService',
        'grpc.Health',
        'grpc.health.v1.Health',
        'microvm.agent.v1.Introspection',
      ]),
    )
    const described = await ask({ fileContainingSymbol: 'grpc.AgentService' })
    const [file = new Uint8Array(0)] = described.fileDescriptorResponse?.fileDescriptorProto ?? []
    const services = fromBinary(FileDescriptorProtoSchema, file).service
    expect(services.map(({ name, method }) => [name, method.length])).toEqual([['AgentService', 42]])
    const ended = once(call.resume(), 'end')
    call.end()
    await ended
    client.close()
  })
})
