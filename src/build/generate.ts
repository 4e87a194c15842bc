import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { messageFieldsSource } from './message-fields.ts'
import { buildRoot, projectRoot } from './project.ts'

export const generatedRoot = join(projectRoot, 'src/gen')

const TS_PROTO_OPTIONS = [
  'env=both', // bytes are views (Uint8Array) of what was received, never copies in a Buffer
  'forceLong=bigint', // 64-bit fields reach 2^64-1
  'enumsAsLiterals=true', // erasable syntax
  'unrecognizedEnum=false',
  'outputServices=generic-definitions', // data only: no import of a gRPC library
  'outputJsonMethods=false',
  'useExactTypes=false',
  'esModuleInterop=true',
  'importSuffix=.ts',
  'annotateFilesWithVersion=false',
]

/** Generates everything that derives from `proto/` into the empty folder `target`. Needs no network. */
export function generate(target: string): void {
  const descriptors = join(target, 'descriptors.binpb')
  buf(['build', 'proto', '--exclude-source-info', '--output', descriptors])
  writeFileSync(join(target, 'message-fields.ts'), messageFieldsSource(readFileSync(descriptors)))
  const template = {
    version: 'v2',
    plugins: [
      {
        local: [process.execPath, join(projectRoot, 'node_modules/ts-proto/protoc-gen-ts_proto')],
        out: target,
        opt: TS_PROTO_OPTIONS,
        include_imports: true,
        strategy: 'all',
      },
    ],
  }
  buf(['generate', 'proto', '--template', JSON.stringify(template)])
}

function buf(args: readonly string[]): void {
  const program = join(projectRoot, 'node_modules/@bufbuild/buf/bin/buf')
  execFileSync(process.execPath, [program, ...args], { cwd: projectRoot, stdio: 'inherit' })
}

/** Replaces the whole folder, so that no file of a removed message remains. */
export function regenerate(): void {
  mkdirSync(buildRoot, { recursive: true })
  const fresh = mkdtempSync(join(buildRoot, 'gen-'))
  try {
    generate(fresh)
    const previous = `${fresh}.previous`
    if (existsSync(generatedRoot)) renameSync(generatedRoot, previous)
    renameSync(fresh, generatedRoot)
    rmSync(previous, { recursive: true, force: true })
  } finally {
    rmSync(fresh, { recursive: true, force: true })
  }
}
