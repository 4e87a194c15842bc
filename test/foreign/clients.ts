import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { cached } from '../../src/build/cache.ts'
import { projectRoot } from '../../src/build/project.ts'

const run = promisify(execFile)
const here = join(projectRoot, 'test/foreign')
const protoFolder = join(projectRoot, 'proto')
/** Has introspection.proto, which imports nothing. */
const ownProtoFolder = join(protoFolder, 'microvm/agent/v1')
const INTROSPECTION = 'introspection.proto'
/** Debian's golang-github-gogo-protobuf-dev: Go packages, and the proto files of google.protobuf. */
const GO_PACKAGES = '/usr/share/gocode'
const GOOGLE_PROTOS = `${GO_PACKAGES}/src/github.com/gogo/protobuf/protobuf`
const GO_IMPORTS = [
  ...['agent', 'health', 'csi', 'oci'].map((name) => `M${name}.proto=agent/grpc`),
  'Mtypes.proto=agent/types',
  'Mgoogle/protobuf/empty.proto=github.com/gogo/protobuf/types',
].join(',')

/** Clients on foreign libraries that know the API only by its proto files. */
export interface ForeignClients {
  /** containerd's ttRPC library for Go with gogo's messages; resolves with its stdout. */
  readonly go: (socket: string, caseFile: string) => Promise<string>
  /** grpcio for Python with protoc's messages; resolves with its stdout. */
  readonly python: (socket: string, caseFile: string) => Promise<string>
}

/** The knowledge of a client that begins without a description of the API. */
export interface Reflected {
  readonly services: readonly string[]
  readonly methods: readonly string[]
  /** The method's answer to an empty request, in protobuf's JSON mapping. */
  readonly answer: unknown
}

/** grpcio for Python discovers the services at `socket` by reflection and calls a method, with Debian's packages alone. */
export async function reflectedBy(socket: string, service: string, method: string): Promise<Reflected> {
  const program = join(here, 'python/reflect.py')
  const env = { PATH: '/usr/bin:/bin', PYTHONDONTWRITEBYTECODE: '1' }
  const { stdout } = await run('/usr/bin/python3', [program, socket, service, method], { env })
  return JSON.parse(stdout)
}

export async function foreignClients(): Promise<ForeignClients> {
  const folder = await cached('foreign-clients', { files: [protoFolder, here] }, build)
  const python = join(folder, 'python')
  return {
    go: async (socket, caseFile) => (await run(join(folder, 'drive'), [socket, caseFile])).stdout,
    python: async (socket, caseFile) => {
      const env = { PATH: '/usr/bin:/bin', PYTHONPATH: python, PYTHONDONTWRITEBYTECODE: '1' }
      return (await run('/usr/bin/python3', [join(here, 'python/drive.py'), socket, caseFile], { env }))
        .stdout
    },
  }
}

async function build(folder: string): Promise<void> {
  const protos = join(folder, 'proto')
  const go = join(folder, 'go/src/agent')
  for (const path of ['grpc', 'types', 'introspection'].map((name) => join(go, name)))
    mkdirSync(path, { recursive: true })
  for (const path of [protos, join(folder, 'python')]) mkdirSync(path, { recursive: true })
  const names = readdirSync(protoFolder).filter((name) => name.endsWith('.proto'))
  for (const path of [...names.map((name) => join(protoFolder, name)), join(ownProtoFolder, INTROSPECTION)]) {
    const name = basename(path)
    // gogo's generator predates proto3 `optional`; presence makes no difference on the wire.
    const text = readFileSync(path, 'utf8').replaceAll(/^ {2}optional /gm, '  ')
    writeFileSync(join(protos, name), text)
  }
  await run('protoc', [
    `-I${protoFolder}`,
    `-I${ownProtoFolder}`,
    `-I${GOOGLE_PROTOS}`,
    `--python_out=${join(folder, 'python')}`,
    ...[...names, INTROSPECTION],
  ])
  // gogo generates one Go package a run, in the given folder.
  const gogo = (target: string, files: readonly string[]) =>
    run('protoc', [`-I${protos}`, `-I${GOOGLE_PROTOS}`, `--gogo_out=${GO_IMPORTS}:${target}`, ...files])
  await gogo(join(go, 'grpc'), ['agent.proto', 'health.proto', 'csi.proto', 'oci.proto'])
  await gogo(join(go, 'types'), ['types.proto'])
  await gogo(join(go, 'introspection'), [INTROSPECTION])
  await run('/usr/bin/go', ['build', '-o', join(folder, 'drive.new'), '.'], {
    cwd: join(here, 'go/drive'),
    env: {
      PATH: '/usr/bin:/bin',
      GO111MODULE: 'off',
      GOPATH: `${join(folder, 'go')}:${GO_PACKAGES}`,
      GOCACHE: join(folder, 'go/cache'),
    },
  })
  renameSync(join(folder, 'drive.new'), join(folder, 'drive'))
}
