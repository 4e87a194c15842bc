import type { CreateContainerRequest, ExecProcessRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial, Process } from '../../../src/gen/oci.ts'
import type { AgentConnection } from './agent-process.ts'

type Agent = AgentConnection['agent']

/** Ports of the host for streams. */
export type Ports = Partial<Pick<ExecProcessRequest, 'stdinPort' | 'stdoutPort' | 'stderrPort'>>

/** What a process is like besides what it runs. */
export interface ProcessOptions {
  readonly terminal?: boolean
  readonly ports?: Ports
  /** Takes the place of what most processes are given. */
  readonly process?: DeepPartial<Process>
}

/** What a container needs to be like most: a busybox root, /proc, a terminal device, its own namespaces. */
export function container(
  containerId: string,
  root: string,
  args: readonly string[],
  options: ProcessOptions & { readonly sandboxPidns?: boolean } = {},
): DeepPartial<CreateContainerRequest> {
  return {
    containerId,
    ...options.ports,
    sandboxPidns: options.sandboxPidns ?? false,
    OCI: {
      Version: '1.0.2',
      Root: { Path: root },
      Process: processOf(args, options),
      Mounts: [
        { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
        { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
        {
          destination: '/dev/pts',
          type: 'devpts',
          source: 'devpts',
          options: ['newinstance', 'ptmxmode=0666'],
        },
      ],
      Linux: { Namespaces: ['mount', 'ipc', 'uts', 'pid'].map((Type) => ({ Type })) },
    },
  }
}

/** Another process for a container. */
export function exec(
  containerId: string,
  execId: string,
  args: readonly string[],
  options: ProcessOptions = {},
): DeepPartial<ExecProcessRequest> {
  return { containerId, execId, process: processOf(args, options), ...options.ports }
}

function processOf(args: readonly string[], { terminal = false, process }: ProcessOptions) {
  const capabilities = ['CAP_KILL', 'CAP_SYS_CHROOT']
  return {
    Terminal: terminal,
    ...(terminal ? { ConsoleSize: { Height: 33, Width: 77 } } : {}),
    Args: [...args],
    Env: ['PATH=/bin'],
    Cwd: '/',
    Capabilities: { Bounding: capabilities, Effective: capabilities, Permitted: capabilities },
    ...process,
  }
}

/** One process of a container, driven over the wire. */
export class RemoteProcess {
  readonly #agent: Agent
  readonly #key: { readonly containerId: string; readonly execId: string }

  constructor(agent: Agent, containerId: string, execId = '') {
    this.#agent = agent
    this.#key = { containerId, execId }
  }

  /** One read. */
  async read(stream: 'stdout' | 'stderr' = 'stdout', length = 32_768): Promise<Buffer> {
    const request = { ...this.#key, len: length }
    const call = stream === 'stdout' ? this.#agent.readStdout : this.#agent.readStderr
    const { data } = await call(request)
    return Buffer.from(data.buffer, data.byteOffset, data.length)
  }

  /** Everything up to the end. */
  async readAll(stream: 'stdout' | 'stderr' = 'stdout'): Promise<Buffer> {
    const chunks: Buffer[] = []
    for (let chunk = await this.read(stream); chunk.length > 0; chunk = await this.read(stream))
      chunks.push(chunk)
    return Buffer.concat(chunks)
  }

  /** Reads until `text` has come, and answers everything read. */
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
