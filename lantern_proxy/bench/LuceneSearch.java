// Lucene for `lantern bench bm25`: bm25_lucene.py runs this file as it stands (java -cp LUCENE LuceneSearch.java FOLDER K1 B).
// In, one line each: "add TERMS", "warm K TERMS", "ready SECONDS", "ask K TERMS", terms with blanks between them.
// Out: a line for "ready" (the release) and one for each "ask": nanoseconds, then number:score, best first.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.MMapDirectory;
import org.apache.lucene.util.Version;

public class LuceneSearch {
    private static final List<String> warmUp = new ArrayList<>();

    public static void main(String[] given) throws IOException {
        BM25Similarity similarity = new BM25Similarity(Float.parseFloat(given[1]), Float.parseFloat(given[2]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        try (Directory folder = new MMapDirectory(Path.of(given[0]))) {
            double seconds = fill(folder, similarity, in);
            try (DirectoryReader reader = DirectoryReader.open(folder)) {
                IndexSearcher searcher = new IndexSearcher(reader);
                searcher.setSimilarity(similarity);
                searcher.setQueryCache(null); // each question is to be answered, not remembered
                warm(searcher, seconds);
                out.println(Version.LATEST);
                out.flush();
                for (String line = in.readLine(); line != null; line = in.readLine()) answer(searcher, line, out);
            }
        }
    }

    /** One segment of all that is added; returns how many seconds to warm up for. */
    private static double fill(Directory folder, BM25Similarity similarity, BufferedReader in) throws IOException {
        FieldType counts = new FieldType();
        counts.setIndexOptions(IndexOptions.DOCS_AND_FREQS);
        counts.freeze();
        IndexWriterConfig config = new IndexWriterConfig(new WhitespaceAnalyzer()).setSimilarity(similarity).setRAMBufferSizeMB(256);
        try (IndexWriter writer = new IndexWriter(folder, config)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.startsWith("warm ")) {
                    warmUp.add(line.substring(5));
                } else if (line.startsWith("ready ")) {
                    writer.forceMerge(1);
                    return Double.parseDouble(line.substring(6));
                } else {
                    Document record = new Document();
                    record.add(new Field("text", line.substring(4), counts));
                    writer.addDocument(record);
                }
            }
        }
        throw new IOException("the input ended before \"ready\"");
    }

    private static ScoreDoc[] search(IndexSearcher searcher, String question) throws IOException {
        String[] words = question.split(" ");
        BooleanQuery.Builder any = new BooleanQuery.Builder();
        for (int i = 1; i < words.length; i++)
            any.add(new TermQuery(new Term("text", words[i])), BooleanClause.Occur.SHOULD);
        return searcher.search(any.build(), Integer.parseInt(words[0])).scoreDocs;
    }

    private static void warm(IndexSearcher searcher, double seconds) throws IOException {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        for (int i = 0; !warmUp.isEmpty() && System.nanoTime() < end; i++) search(searcher, warmUp.get(i % warmUp.size()));
    }

    private static void answer(IndexSearcher searcher, String line, PrintStream out) throws IOException {
        String question = line.substring(4);
        long begun = System.nanoTime();
        ScoreDoc[] found = search(searcher, question);
        StringBuilder told = new StringBuilder().append(System.nanoTime() - begun);
        for (ScoreDoc each : found) told.append(' ').append(each.doc).append(':').append(each.score);
        out.println(told);
        out.flush();
    }
}
