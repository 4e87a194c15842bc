import type { StatusCodeName } from '../../../../src/base/errors.ts'
import { CopyFileRequest } from '../../../../src/gen/agent.ts'
import { recordedRequest } from '../../../recordings/recorded-request.ts'
import type { BadInput } from './bad-input.ts'

const ROOT = '/run/kata-containers/shared/containers'
const INT64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n }

/** A copy of 58 bytes by the Go shim, with this change. */
const copy = (
  what: string,
  change: Partial<CopyFileRequest>,
  names: string,
  code: StatusCodeName = 'INVALID_ARGUMENT',
): BadInput => ({
  ...{ rpc: 'CopyFile', what, code, names },
  call: (agent) =>
    agent.copyFile({ ...recordedRequest(CopyFileRequest, 'go-shim.no-shared-fs', 7), ...change }),
})

const path = (what: string, sent: string, names: string): BadInput =>
  copy(what, { path: sent }, names, 'INTERNAL')

const kind = (what: string, fileMode: number, names: string): BadInput =>
  copy(what, { fileMode }, `file_mode: ${names}, want a regular file, a directory or a symbolic link`)

const link = (what: string, target: string, names: string): BadInput =>
  copy(what, { fileMode: 0o120_777, data: Buffer.from(target) }, names)

export const COPY_INPUT: readonly BadInput[] = [
  path('no path', '', `path "": not below ${ROOT}`),
  path('a relative path', 'shared/containers/x', `not below ${ROOT}`),
  path('a path elsewhere', '/etc/passwd', `path "/etc/passwd": not below ${ROOT}`),
  path('a path beside the folder', `${ROOT}-2/x`, `not below ${ROOT}`),
  path('the folder itself', ROOT, `not below ${ROOT}`),
  path('the folder itself with slashes', `${ROOT}//./`, `not below ${ROOT}`),
  path('a path that older agents allow', '/run/kata-containers/x', `not below ${ROOT}`),
  path('a path that leads out', `${ROOT}/../../../../etc/x`, 'contains ".."'),
  path('a path that leads out and back', `${ROOT}/a/../b`, 'contains ".."'),
  path('a path that ends above', `${ROOT}/a/..`, 'contains ".."'),
  path('a path with a NUL', `${ROOT}/a\0b`, 'contains a NUL byte'),
  path('a path of a MiB', `${ROOT}/${'x/'.repeat(2 ** 19)}`, 'longer than 4095 bytes'),
  path(
    'the name of an unfinished file',
    `${ROOT}/a/.copyfile-${'0a'.repeat(16)}`,
    'the name of an unfinished file',
  ),
  kind('a socket', 0o140_755, 'socket'),
  kind('a block device', 0o060_600, 'block'),
  kind('a character device', 0o020_666, 'character'),
  kind('a fifo', 0o010_600, 'fifo'),
  kind('all bits of a type', 0o170_644, 'type 0170000'),
  copy('a negative size', { fileSize: -1n }, 'file_size: -1, want 0 or more'),
  copy('the smallest size', { fileSize: INT64.min }, `file_size: ${INT64.min}, want 0 or more`),
  copy('a negative offset', { offset: -1n }, 'offset: -1, want 0 or more'),
  copy(
    'a huge offset',
    { offset: INT64.max },
    `offset: ${INT64.max}, 58 bytes of data end after file_size 58`,
  ),
  copy('an offset past the end', { offset: 1n }, 'offset: 1, 58 bytes of data end after file_size 58'),
  copy('more data than the file has', { fileSize: 57n }, '58 bytes of data end after file_size 57'),
  copy('data for an empty file', { fileSize: 0n }, '58 bytes of data end after file_size 0'),
  link('a link to nothing', '', 'data: empty, want the target of the symbolic link'),
  link('a link with a NUL', 'a\0b', 'data: the target of the symbolic link contains a NUL byte'),
  link('a link of a page', 'x'.repeat(4096), 'data: a target of 4096 bytes, want at most 4095'),
]
