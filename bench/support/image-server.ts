import { randomFillSync } from 'node:crypto'
import { createServer } from 'node:http'

/** Serves an image of as many MiB as argument 1, of which each is the same random bytes. Prints its port. */
const mebibytes = Number(process.argv[2])
const part = randomFillSync(Buffer.alloc(2 ** 20))

const server = createServer((_, answer) => {
  answer.writeHead(200, { 'content-length': mebibytes * part.length, etag: '"image"' })
  let sent = 0
  const more = () => {
    while (sent < mebibytes) {
      sent += 1
      if (!answer.write(part)) return
    }
    answer.end()
  }
  answer.on('drain', more)
  more()
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (address !== null && typeof address !== 'string') process.stdout.write(`${address.port}\n`)
})
