import { SIGKILL } from '../../../src/base/signals.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import type { FakeOs } from '../fakes/fake-os.ts'

const VERBS = ['create', 'start', 'exec', 'delete', 'pause', 'resume', 'update']

type Refusal = Partial<ToolResult> | undefined

export interface FakeProcess {
  readonly pid: number
  readonly containerId: string
  readonly stdin: Fd
  readonly stdout: Fd
  readonly stderr: Fd
}

/** An OCI runtime on a fake machine, with cgroup v2 where `cgroup.controllers` exists. The test controls its processes. */
export class FakeRuntime {
  readonly #os: FakeOs
  readonly processes: FakeProcess[] = []
  readonly calls: string[] = []
  /** Called first by each run. A result replaces the run; undefined lets it continue. */
  refuse: (verb: string) => Refusal | Promise<Refusal> = () => undefined
  #lastPid = 1000

  constructor(os: FakeOs) {
    this.#os = os
    os.tools.script((argv) => (argv[0] === '/usr/sbin/runc' ? this.#run(argv, this.#stdio()) : undefined))
    os.system.onKill = (pid, signal) => {
      if (signal === SIGKILL) this.end(pid, { signal })
    }
  }

  last(): FakeProcess {
    const process = this.processes.at(-1)
    if (process === undefined) throw new Error('no process was started')
    return process
  }

  end(pid: number, how: { readonly code: number } | { readonly signal: number }): void {
    const process = this.processes.find((candidate) => candidate.pid === pid)
    if (process === undefined) return
    this.processes.splice(this.processes.indexOf(process), 1)
    this.#os.system.processes.delete(pid)
    for (const fd of new Set([process.stdin, process.stdout, process.stderr])) this.#os.streams.close(fd)
    this.#os.exits.exit(pid, how)
  }

  async #run(argv: readonly string[], stdio: readonly (Fd | undefined)[]): Promise<Partial<ToolResult>> {
    const verb = argv.find((word) => VERBS.includes(word)) ?? ''
    this.calls.push(verb)
    const refusal = await this.refuse(verb)
    if (refusal !== undefined) return refusal
    const option = (name: string) => argv[argv.indexOf(name) + 1] ?? ''
    const call = {
      id: argv.at(-1) ?? '',
      state: `${option('--root')}/${argv.at(-1)}`,
      pidFile: option('--pid-file'),
      console: argv.includes('--console-socket') ? option('--console-socket') : undefined,
      stdio,
    }
    if (verb === 'create') await this.#create(call, option('--bundle'))
    if (verb === 'start') await this.#os.files.removeTree(`${call.state}/exec.fifo`)
    if (verb === 'exec') await this.#start(call)
    if (verb === 'pause') await this.#freeze(call, 'FROZEN')
    if (verb === 'resume') await this.#freeze(call, 'THAWED')
    if (verb === 'delete') await this.#delete(call)
    return {}
  }

  /** The streams of the current call: duplicates, as a child has them. */
  #stdio(): readonly (Fd | undefined)[] {
    const given = this.#os.tools.calls.at(-1)?.options.stdio ?? []
    return given.map((fd) => (fd === undefined ? undefined : this.#os.streams.duplicate(fd)))
  }

  async #create(call: Call, bundle: string): Promise<void> {
    const { files } = this.#os
    await files.makeDirectories(call.state)
    const config = JSON.parse(await files.readText(`${bundle}/config.json`))
    await files.put(`${call.state}/cgroup`, config.linux.cgroupsPath)
    await files.put(`${call.state}/exec.fifo`, '')
    await this.#start(call)
  }

  async #start({ id, state, pidFile, console, stdio }: Call): Promise<void> {
    const { files, system, consoles } = this.#os
    this.#lastPid += 1
    const pid = this.#lastPid
    const slave = console === undefined ? undefined : consoles.connect(console)
    const [stdin = slave, stdout = slave, stderr = slave] = stdio
    if (stdin === undefined || stdout === undefined || stderr === undefined) throw new Error('no streams')
    system.processes.add(pid)
    this.processes.push({ pid, containerId: id, stdin, stdout, stderr })
    const cgroup = await this.#cgroupOf(state)
    const members = this.processes.filter(({ containerId }) => containerId === id)
    await files.put(`${cgroup}/cgroup.procs`, members.map((member) => `${member.pid}\n`).join(''))
    await files.write(pidFile, String(pid))
  }

  async #freeze({ state }: Call, freezer: 'FROZEN' | 'THAWED'): Promise<void> {
    const { files } = this.#os
    const cgroup = await this.#cgroupOf(state)
    await files.put(`${cgroup}/freezer.state`, `${freezer}\n`)
    await files.put(`${cgroup}/cgroup.events`, `frozen ${Number(freezer === 'FROZEN')}\n`)
  }

  async #cgroupOf(state: string): Promise<string> {
    const { files } = this.#os
    const hierarchy = files.has('/sys/fs/cgroup/cgroup.controllers') ? '' : '/freezer'
    return `/sys/fs/cgroup${hierarchy}${await files.readText(`${state}/cgroup`)}`
  }

  async #delete({ id, state }: Call): Promise<void> {
    const { files } = this.#os
    for (const { pid } of this.processes.filter(({ containerId }) => containerId === id)) {
      this.end(pid, { signal: SIGKILL })
    }
    await files.removeTree(await this.#cgroupOf(state))
    await files.removeTree(state)
  }
}

interface Call {
  readonly id: string
  readonly state: string
  readonly pidFile: string
  readonly console: string | undefined
  readonly stdio: readonly (Fd | undefined)[]
}
