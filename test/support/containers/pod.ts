import type { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import type { ServiceClient } from '../../../src/rpc/client.ts'
import {
  type ContainerOptions,
  createContainerRequest,
  execProcessRequest,
  type ProcessOptions,
} from './container-requests.ts'

type Agent = ServiceClient<typeof AgentServiceDefinition>

/** The containers of an agent's sandbox, all on one root file system. */
export interface Pod {
  readonly agent: Agent
  /** The path of the root on the agent's side. */
  readonly root: string
  create(id: string, args: readonly string[], options?: ContainerOptions): Promise<RemoteProcess>
  run(id: string, args: readonly string[], options?: ContainerOptions): Promise<RemoteProcess>
  add(id: string, execId: string, args: readonly string[], options?: ProcessOptions): Promise<RemoteProcess>
  /** Runs a shell script in a container of its own and returns its output; throws unless it exits with 0. */
  output(id: string, script: string, options?: ContainerOptions): Promise<string>
  remove(id: string): Promise<void>
}

export function podOf(agent: Agent, root: string): Pod {
  const create: Pod['create'] = async (id, args, options) => {
    await agent.createContainer(createContainerRequest(id, root, args, options))
    return new RemoteProcess(agent, id)
  }
  const run: Pod['run'] = async (id, args, options) => {
    const init = await create(id, args, options)
    await agent.startContainer({ containerId: id })
    return init
  }
  const remove: Pod['remove'] = async (id) => {
    await agent.removeContainer({ containerId: id })
  }
  return {
    agent,
    root,
    create,
    run,
    remove,
    add: async (id, execId, args, options) => {
      await agent.execProcess(execProcessRequest(id, execId, args, options))
      return new RemoteProcess(agent, id, execId)
    },
    output: async (id, script, options) => {
      const init = await run(id, ['sh', '-c', script], options)
      const [output, errors] = [await init.readAll('stdout'), await init.readAll('stderr')]
      const status = await init.wait()
      if (status !== 0) throw new Error(`${script}: exit status ${status}: ${output}${errors}`)
      await remove(id)
      return output.toString()
    },
  }
}

export class RemoteProcess {
  readonly #agent: Agent
  readonly #key: { readonly containerId: string; readonly execId: string }

  constructor(agent: Agent, containerId: string, execId = '') {
    this.#agent = agent
    this.#key = { containerId, execId }
  }

  async read(stream: 'stdout' | 'stderr' = 'stdout', length = 32_768): Promise<Buffer> {
    const request = { ...this.#key, len: length }
    const call = stream === 'stdout' ? this.#agent.readStdout : this.#agent.readStderr
    const { data } = await call(request)
    return Buffer.from(data.buffer, data.byteOffset, data.length)
  }

  async readAll(stream: 'stdout' | 'stderr' = 'stdout'): Promise<Buffer> {
    const chunks: Buffer[] = []
    for (let chunk = await this.read(stream); chunk.length > 0; chunk = await this.read(stream))
      chunks.push(chunk)
    return Buffer.concat(chunks)
  }

  /** Reads until `text` has arrived, and returns everything read. */
  async readUntil(text: string): Promise<string> {
    let read = ''
    while (!read.includes(text)) {
      const chunk = await this.read()
      if (chunk.length === 0) throw new Error(`the output ended before ${JSON.stringify(text)}: ${read}`)
      read += chunk.toString()
    }
    return read
  }

  async write(data: Uint8Array | string): Promise<void> {
    await this.#agent.writeStdin({ ...this.#key, data: Buffer.from(data) })
  }

  async closeStdin(): Promise<void> {
    await this.#agent.closeStdin(this.#key)
  }

  async resize(row: number, column: number): Promise<void> {
    await this.#agent.ttyWinResize({ ...this.#key, row, column })
  }

  async signal(signal: number): Promise<void> {
    await this.#agent.signalProcess({ ...this.#key, signal })
  }

  async wait(): Promise<number> {
    return (await this.#agent.waitProcess(this.#key)).status
  }
}
