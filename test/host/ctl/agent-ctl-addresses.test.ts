import { connect, createServer, type ListenOptions, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('agent-ctl at each kind of address', () => {
  let agent: AgentProcess
  beforeAll(async () => {
    agent = await startAgent()
  })
  afterAll(() => agent.stop())

  /** Listens and joins each connection with the agent, after `greet`. Returns the TCP port. */
  async function forward(
    where: ListenOptions,
    greet: (socket: Socket) => Promise<void> = async () => {},
  ): Promise<{ port: number; close(): void }> {
    const join = async (socket: Socket) => {
      await greet(socket)
      const target = connect(agent.path)
      target.on('error', () => {})
      socket
        .on('error', () => {})
        .pipe(target)
        .pipe(socket)
    }
    const server = createServer((socket) => void join(socket))
    await new Promise<void>((resolve) => server.listen(where, resolve))
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    return { port, close: () => server.close() }
  }

  const serving = { status: 0, stdout: '{"status":"SERVING"}\n', stderr: '' }

  it('reaches an abstract name', async () => {
    const name = `agent-ctl-${process.pid}`
    const { close } = await forward({ path: `\0${name}` })
    expect(await ctl(['-a', `unix://@${name}`, '-o', 'json', 'Check'])).toEqual(serving)
    close()
  })

  it.each(['ttrpc', 'grpc'])('reaches a TCP port over %s', async (protocol) => {
    const { close, port } = await forward({ port: 0, host: '127.0.0.1' })
    const words = ['-a', `tcp://127.0.0.1:${port}`, '--protocol', protocol, '-o', 'json', 'Check']
    expect(await ctl(words)).toEqual(serving)
    close()
  })

  it("asks a VMM's socket for the port, also in the words of the reference", async () => {
    const path = join(temporaryFolder(), 'vmm.sock')
    const asked: string[] = []
    const greet = (socket: Socket) =>
      new Promise<void>((resolve) => {
        socket.once('data', (line) => {
          asked.push(line.toString())
          socket.write('OK 1073741824\n', () => resolve())
        })
      })
    const { close } = await forward({ path }, greet)
    expect(await ctl(['-a', `hvsock://${path}:1024`, '-o', 'json', 'Check'])).toEqual(serving)
    const words = ['--server-address', `unix://${path}`, '--hybrid-vsock', 'true', '-c', 'Check']
    expect((await ctl(['connect', ...words])).status).toBe(0)
    expect(asked).toEqual(['CONNECT 1024\n', 'CONNECT 1024\n'])
    close()
  })

  it('says why there is no console', async () => {
    const path = join(temporaryFolder(), 'vmm.sock')
    const greet = (socket: Socket) =>
      new Promise<void>((resolve) => {
        socket.once('data', (line) => {
          if (line.toString() === 'CONNECT 1024\n') socket.write('OK 1073741824\n', () => resolve())
          else socket.destroy()
        })
      })
    const { close } = await forward({ path }, greet)
    expect(await ctl(['-a', `hvsock://${path}`, 'console'])).toEqual({
      status: 125,
      stdout: '',
      stderr:
        'agent-ctl: console: agent.debug_console is not set, want ./microvm run --append "agent.debug_console agent.debug_console_vport=1026"\n',
    })
    close()
  })
})
